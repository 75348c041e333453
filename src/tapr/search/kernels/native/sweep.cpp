// The instruction sets of this build, and one sweep over a bank by some threads.
#include "sweep.h"

#include <atomic>
#include <cstring>
#include <exception>
#include <thread>

namespace tapr {
namespace {

// best first
const Isa* const kAll[] = {
#if TAPR_AMX
    &amx,
#endif
#if TAPR_X86
    &avx512vnni,
#if TAPR_AVXVNNI
    &avxvnni,
#endif
    &avx512, &avx2,
#endif
#if TAPR_DOTPROD
    &neondot,
#endif
#if TAPR_NEON
    &neon,
#endif
    &portable};

// What a thread takes at a time: some pictures of one part of the bank.
struct Run {
  const Job* job;
  size_t begin, end;
};

std::vector<Run> runs_of(const std::vector<Job>& jobs, Form form, size_t threads) {
  size_t pictures = 0;
  for (const Job& job : jobs) pictures += job.pictures;
  const size_t group = group_size(jobs[0], form), fair = pictures / (4 * threads) + 1;  // a short sweep is shared out too
  const size_t length = ((fair < 64 ? fair : 64) + group - 1) / group * group;
  std::vector<Run> runs;
  for (const Job& job : jobs)
    for (size_t begin = 0; begin < job.pictures; begin += length)
      runs.push_back({&job, begin, begin + length < job.pictures ? begin + length : job.pictures});
  return runs;
}

// A record's shape: see Records. The outline has one share and one float more.
Records records_of(size_t directions, size_t places, size_t blocks, size_t dim, bool outline) {
  const size_t shares = directions + outline;
  const size_t bytes = 4 * (2 * shares + 1 + outline) + blocks + places * (shares + blocks);
  return {nullptr, shares, directions, bytes + directions * ((dim + 1) / 2)};
}

}  // namespace

std::vector<const Isa*> isas_here() {
  std::vector<const Isa*> found;
  for (const Isa* isa : kAll)
    if (isa->supported()) found.push_back(isa);
  return found;
}

const Isa* find_isa(const char* name) {
  for (const Isa* isa : kAll)
    if (std::strcmp(isa->name, name) == 0 && isa->supported()) return isa;
  return nullptr;
}

bool read_sketches(const int64_t* places, size_t count, const float* numbers, size_t left, const Job& job,
                   std::vector<Sketch>& sketches) {
  constexpr size_t panel = kPanel * kLanes, most = 1 << 20;
  for (size_t i = 0; i < count; ++i, places += 4) {
    const size_t query = static_cast<size_t>(places[0]), first = static_cast<size_t>(places[1]);
    const size_t directions = static_cast<size_t>(places[2]), probes = static_cast<size_t>(places[3]);
    if (query >= job.queries || first >= job.probes || directions > job.probes - first || probes % kLanes ||
        probes > most || first % panel + directions > panel)
      return false;
    const size_t wanted = 1 + probes * (directions + 2);
    if (wanted > left) return false;
    sketches.push_back({query, first, directions, probes, numbers[0], numbers + 1, numbers + 1 + probes});
    numbers += wanted, left -= wanted;
  }
  return left == 0;
}

Bounds shape_of(const Job& job, size_t places, size_t blocks, size_t first, size_t second, const float* lanes) {
  const size_t count = (job.probes + kLanes - 1) / kLanes * kLanes;
  Bounds shape{};
  shape.places = places;
  shape.blocks = blocks;
  shape.lanes = {count, lanes, lanes + count, lanes + 2 * count, lanes + 3 * count, lanes + 4 * count, lanes + 5 * count};
  shape.records[0] = records_of(first, places, blocks, job.dim, true);
  shape.records[1] = records_of(second, places, blocks, job.dim, false);
  return shape;
}

std::vector<int32_t> owners_of(const Job& job) {
  std::vector<int32_t> owners;
  for (size_t first = 0; first < job.probes; first += kLanes) {
    owners.push_back(job.owner[first]);
    for (size_t i = first; i < first + kLanes && i < job.probes; ++i)
      if (job.owner[i] != job.owner[first]) owners.back() = -1;
  }
  return owners;
}

// Threads take runs from a common counter until none is left.
std::string sweep(const std::vector<Job>& jobs, const Isa& isa, size_t threads) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Packed packed;
  std::vector<Run> runs;
  try {
    pack(jobs[0], isa.form_for(jobs[0]), packed);  // the queries are the same for all parts
    runs = runs_of(jobs, packed.form, threads);
  } catch (const std::exception& error) {
    return error.what();
  }
  const auto work = [&] {
    try {
      Scratch scratch;
      for (size_t i = next.fetch_add(1); i < runs.size(); i = next.fetch_add(1))
        isa.score(*runs[i].job, packed, scratch, runs[i].begin, runs[i].end);
    } catch (const std::exception&) {
      failed = true;
    }
  };
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < threads && i < runs.size(); ++i) others.emplace_back(work);
  } catch (const std::exception&) {
    // fewer threads than asked for: this one does the rest
  }
  work();
  for (std::thread& other : others) other.join();
  return failed ? "out of memory" : "";
}

}  // namespace tapr
