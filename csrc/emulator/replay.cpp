// A stand-alone program that runs a list of launches from a file: `kernels LAUNCHES RESULTS`.
//
// The sanitizers watch this program instead of Python. Every buffer is a heap block of exactly its own size,
// so that one byte too far is out of bounds. LAUNCHES holds, in order (flashperf/emulator.py writes it):
//   buffer BYTES\n<bytes>
//   launch KERNEL GX GY GZ BX BY BZ SHARED_BYTES ORDER PARAMETERS\n, then for each parameter
//     pointer BUFFER OFFSET\n   or   scalar BYTES\n<bytes>
// RESULTS receives the bytes of all buffers, one after another. Exit status 3: a launch failed, message on
// stderr.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

extern "C" const char* emulator_launch(const char* name, const unsigned* grid, const unsigned* block,
                                       size_t shared_bytes, const char* order, void* const* parameters);

namespace {

struct Buffer {
  char* data;
  size_t bytes;
};

[[noreturn]] void malformed(const char* what) {
  fprintf(stderr, "replay: malformed %s\n", what);
  exit(2);
}

void read_bytes(FILE* file, void* target, size_t bytes) {
  if (fread(target, 1, bytes, file) != bytes) malformed("bytes");
}

Buffer read_buffer(FILE* file) {
  Buffer buffer{};
  void* memory = nullptr;
  if (fscanf(file, "%zu", &buffer.bytes) != 1 || fgetc(file) != '\n') malformed("buffer");
  if (posix_memalign(&memory, 256, buffer.bytes)) malformed("size");  // 256: as cudaMalloc aligns
  buffer.data = static_cast<char*>(memory);
  read_bytes(file, buffer.data, buffer.bytes);
  return buffer;
}

/// The value of one parameter, in a slot of 16 bytes.
void read_parameter(FILE* file, const std::vector<Buffer>& buffers, char* slot) {
  char kind[16];
  size_t first = 0, offset = 0;
  if (fscanf(file, "%15s %zu", kind, &first) != 2) malformed("parameter");
  if (!strcmp(kind, "scalar")) {
    if (first > 16 || fgetc(file) != '\n') malformed("scalar");
    read_bytes(file, slot, first);
    return;
  }
  if (fscanf(file, "%zu", &offset) != 1 || first >= buffers.size()) malformed("pointer");
  char* pointer = buffers[first].data + offset;
  memcpy(slot, &pointer, sizeof pointer);
}

void run_launch(FILE* file, const std::vector<Buffer>& buffers) {
  char name[256], order[64];
  unsigned grid[3], block[3];
  size_t shared_bytes = 0, count = 0;
  if (fscanf(file, "%255s %u %u %u %u %u %u %zu %63s %zu", name, &grid[0], &grid[1], &grid[2], &block[0],
             &block[1], &block[2], &shared_bytes, order, &count) != 10)
    malformed("launch");
  std::vector<char> slots(16 * count);
  std::vector<void*> parameters;
  for (size_t i = 0; i < count; ++i) {
    read_parameter(file, buffers, &slots[16 * i]);
    parameters.push_back(&slots[16 * i]);
  }
  if (const char* failure = emulator_launch(name, grid, block, shared_bytes, order, parameters.data())) {
    fprintf(stderr, "%s\n", failure);
    exit(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  FILE* file = argc == 3 ? fopen(argv[1], "rb") : nullptr;
  if (!file) malformed("command line: kernels LAUNCHES RESULTS");
  std::vector<Buffer> buffers;
  char word[16];
  while (fscanf(file, "%15s", word) == 1) {
    if (!strcmp(word, "buffer")) buffers.push_back(read_buffer(file));
    else if (!strcmp(word, "launch")) run_launch(file, buffers);
    else malformed("word");
  }
  fclose(file);
  FILE* results = fopen(argv[2], "wb");
  if (!results) malformed("results path");
  for (const Buffer& buffer : buffers) {
    fwrite(buffer.data, 1, buffer.bytes, results);
    free(buffer.data);
  }
  fclose(results);
}
