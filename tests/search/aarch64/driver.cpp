// The kernel's sources without Python, to be run by QEMU as a program for aarch64: reads one call of _kernel.score from its
// standard input and writes the scores to its standard output. With the argument `isas` it names the instruction sets.
//
// Every array ends where the memory that may be read ends, so that reading past the end of a bank ends the program.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "sweep.h"

namespace {

using namespace tapr;

[[noreturn]] void fail(const std::string& reason) {
  std::fprintf(stderr, "%s\n", reason.c_str());
  std::exit(1);
}

void read(void* to, size_t bytes) {
  if (std::fread(to, 1, bytes, stdin) != bytes) fail("the call is cut short");
}

int64_t number() {
  int64_t value;
  read(&value, sizeof value);
  return value;
}

size_t size() { return static_cast<size_t>(number()); }

// Its length in bytes, then the bytes; a length of -1 is no array.
template <class T> const T* array() {
  const int64_t bytes = number();
  if (bytes < 0) return nullptr;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), room = (bytes + page - 1) / page * page;
  void* memory = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory");
  char* end = static_cast<char*>(memory) + room;
  if (mprotect(end, page, PROT_NONE) != 0) fail("no forbidden page");
  read(end - bytes, bytes);
  return reinterpret_cast<const T*>(end - bytes);
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "isas") == 0) {
    for (const Isa* isa : isas_here()) std::printf("%s\n", isa->name);
    return 0;
  }
  std::string name(size(), ' ');
  read(&name[0], name.size());
  const Isa* isa = find_isa(name.c_str());
  if (!isa) fail("this processor or build has no instruction set " + name);

  const size_t threads = size(), parts = size();
  Job common{};
  common.count = size();
  common.dim = size();
  common.queries = size();
  common.probes = size();
  common.fine = size();
  common.targets = array<float>();
  common.target_weights = array<float>();
  common.vectors = array<float>();
  common.weights = array<float>();
  common.sharpness = array<float>();
  common.owner = array<int32_t>();
  const size_t sketched = size(), numbers = size();
  const int64_t* places = array<int64_t>();
  std::vector<Sketch> sketches;
  if (!read_sketches(places, sketched, array<float>(), numbers, common, sketches)) fail("a sketch does not fit");
  common.sketches = sketches.data();
  common.sketched = sketches.size();

  std::vector<Job> jobs(parts, common);
  size_t pictures = 0;
  for (Job& job : jobs) {
    job.stored = size();
    job.globals = array<uint16_t>();
    job.locals = array<char>();
    job.scales = array<float>();
    job.pictures = size();
    job.rows = array<int64_t>();
    pictures += job.pictures;
  }
  std::vector<float> scores(common.queries * pictures);
  size_t before = 0;
  for (Job& job : jobs) {
    job.scores = scores.data() + before;
    job.stride = pictures;
    before += job.pictures;
  }
  const std::string problem = sweep(jobs, *isa, threads);
  if (!problem.empty()) fail(problem);
  std::fwrite(scores.data(), sizeof(float), scores.size(), stdout);
  return 0;
}
