// A queue of work items in global memory, for persistent blocks: each takes the next item until none is left.
//
// It is a counter, and a second one by which the last block to finish sets both back to zero: no launch is
// needed to reset it, so a call can be repeated and captured in a graph.
#pragma once

#include "common.cuh"

struct Queue {
  int next, finished;
};

/// The block's next item, the same in all its threads; `items` or more when the queue is empty.
DEVICE int take_item(Queue* queue) {
  __shared__ int taken;
  __syncthreads();  // all have read the previous one
  if (threadIdx.x == 0) taken = atomicAdd(&queue->next, 1);
  __syncthreads();
  return taken;
}

/// After its last item, once per block: the last block of the grid leaves the queue as it found it.
DEVICE void leave_queue(Queue* queue) {
  if (threadIdx.x != 0) return;
  if (atomicAdd(&queue->finished, 1) == static_cast<int>(gridDim.x) - 1) {
    atomicExch(&queue->next, 0);
    atomicExch(&queue->finished, 0);
  }
}
