// The words of the emulator's messages.
#include <cstdio>
#include <cstring>

#include "thread.h"

namespace flashperf::emulator {

std::string text(Site where) {
  const char* slash = strrchr(where.file, '/');
  return std::string(" (") + (slash ? slash + 1 : where.file) + ":" + std::to_string(where.line) + ")";
}

static std::string activity(const Thread& thread) {
  char mask[32];
  snprintf(mask, sizeof mask, ", mask 0x%08x", thread.mask);
  switch (thread.state) {
    case State::kAtBarrier:
      return std::string("at ") + thread.operation + text(thread.where);
    case State::kAtWarpOperation:
      return std::string("at ") + thread.operation + text(thread.where) + mask;
    case State::kExited:
      return "exited";
    case State::kReady:
      break;
  }
  return "running";
}

/// "threads 0-31, 40": ids in increasing order, runs joined.
static std::string id_ranges(const std::vector<int>& ids) {
  std::string ranges = ids.size() == 1 ? "thread " : "threads ";
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    ranges += (i ? ", " : "") + std::to_string(ids[i]);
    if (last > i) ranges += "-" + std::to_string(ids[last]);
    i = last + 1;
  }
  return ranges;
}

std::string describe(const std::vector<Thread*>& threads) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const Thread* thread : threads) {
    const std::string what = activity(*thread);
    auto group = groups.begin();
    while (group != groups.end() && group->first != what) ++group;
    if (group == groups.end()) group = groups.insert(groups.end(), {what, {}});
    group->second.push_back(thread->id);
  }
  std::string lines;
  for (const auto& [what, ids] : groups) lines += "\n  " + id_ranges(ids) + ": " + what;
  return lines;
}

}  // namespace flashperf::emulator
