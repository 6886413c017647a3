#ifdef FLASHPERF_TRACE

#include "trace_requests.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace flashperf::emulator {

namespace {

constexpr uint64_t kSectorBytes = 32, kWordBytes = 4, kBanks = 32;

struct Piece {
  uint64_t address;
  uint32_t bytes;
  int lane;
};

struct Open {
  const Access* first;
  uint32_t epoch, place;  // of the first lane that came
  bool pieced = false;    // a lane has several pieces
  std::vector<Piece> pieces;
};

using Key = std::tuple<uint32_t, const void*, uint32_t>;  // epoch, instruction, how often it came before

/// The requests of a warp, in the order in which its first lanes came to them.
std::vector<Open> gather(const std::vector<Access>* const (&accesses)[32]) {
  std::vector<Open> found;
  std::map<Key, size_t> known;
  for (int lane = 0; lane < 32; ++lane) {
    if (!accesses[lane]) continue;
    std::unordered_map<const void*, uint32_t> count;
    uint32_t epoch = 0, place = 0;
    size_t at = 0;
    for (const Access& access : *accesses[lane]) {
      if (access.epoch != epoch) count.clear(), epoch = access.epoch, place = 0;
      if (!access.continued) {
        const Key key{epoch, access.code, count[access.code]++};
        const auto [entry, isNew] = known.try_emplace(key, found.size());
        if (isNew) found.push_back({&access, epoch, place, false, {}});
        at = entry->second;
        found[at].place = std::min(found[at].place, place++);
      } else {
        found[at].pieced = true;
      }
      found[at].pieces.push_back({access.address, access.bytes, lane});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Open& a, const Open& b) {
    return std::tie(a.epoch, a.place) < std::tie(b.epoch, b.place);
  });
  return found;
}

/// The different values of address / unit that the pieces touch, sorted.
std::vector<uint64_t> touched(const std::vector<Piece>& pieces, uint64_t unit) {
  std::vector<uint64_t> values;
  for (const Piece& piece : pieces)
    for (uint64_t v = piece.address / unit; v <= (piece.address + piece.bytes - 1) / unit; ++v)
      values.push_back(v);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

uint32_t different_bytes(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.address < b.address; });
  uint64_t end = 0;
  uint32_t bytes = 0;
  for (const Piece& piece : pieces) {
    const uint64_t from = std::max(end, piece.address), to = piece.address + piece.bytes;
    if (to > from) bytes += static_cast<uint32_t>(to - from);
    end = std::max(end, to);
  }
  return bytes;
}

/// Passes over the banks that these words take: each bank gives one word of 4 bytes a pass.
uint32_t passes(const std::vector<uint64_t>& words) {
  uint32_t per_bank[kBanks] = {}, most = 0;
  for (const uint64_t word : words) most = std::max(most, ++per_bank[word % kBanks]);
  return most;
}

/// Wavefronts of a shared access, and the least that its bytes could take. The hardware takes 8-byte accesses
/// by half warps and 16-byte ones by quarters; a WMMA tile is taken as a whole.
void count_wavefronts(const Open& open, Request& request) {
  const uint32_t bytes = open.first->bytes;
  const int group = open.pieced ? 32 : bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
  for (int first = 0; first < 32; first += group) {
    std::vector<Piece> part;
    for (const Piece& piece : open.pieces)
      if (piece.lane >= first && piece.lane < first + group) part.push_back(piece);
    if (part.empty()) continue;
    const auto words = touched(part, kWordBytes);
    request.wavefronts += passes(words);
    request.least_wavefronts += open.pieced ? (words.size() + kBanks - 1) / kBanks : 1;
  }
}

}  // namespace

void add_requests(Trace& trace, const std::vector<Access>* const (&accesses)[32], uint32_t block,
                  uint32_t warp, uint32_t epoch) {
  static std::unordered_map<const void*, uint32_t> numbers;
  if (trace.code.empty()) numbers.clear();
  uint32_t place = 0;
  for (const Open& open : gather(accesses)) {
    const auto [number, isNew] = numbers.try_emplace(open.first->code, trace.code.size());
    if (isNew) trace.code.push_back(open.first->code);
    Request request{};
    request.block = block, request.warp = warp, request.epoch = epoch, request.place = place++;
    request.instruction = number->second;
    request.kind = static_cast<uint8_t>(open.first->kind);
    request.space = static_cast<uint8_t>(open.first->space);
    request.bytes = different_bytes(open.pieces);
    uint32_t lanes = 0;
    for (const Piece& piece : open.pieces) lanes |= 1u << piece.lane;
    request.lanes = static_cast<uint8_t>(__builtin_popcount(lanes));
    request.first_sector = trace.sectors.size();
    if (open.first->space == Space::kGlobal) {
      const auto sectors = touched(open.pieces, kSectorBytes);
      trace.sectors.insert(trace.sectors.end(), sectors.begin(), sectors.end());
      request.sectors = static_cast<uint32_t>(sectors.size());
    } else {
      count_wavefronts(open, request);
    }
    trace.requests.push_back(request);
  }
}

}  // namespace flashperf::emulator

#endif  // FLASHPERF_TRACE
