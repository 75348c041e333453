// The kernel's sources without Python, to be run by QEMU as a program for aarch64: reads one call of a function of _kernel
// from its standard input and writes the answer to its standard output. With the argument `isas` it names the instruction sets.
//
// Every array ends where the memory that may be read ends, so that reading past the end of a bank ends the program.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
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

std::string text() {
  std::string found(size(), ' ');
  read(&found[0], found.size());
  return found;
}

struct Array {
  void* data = nullptr;  // null: not given
  size_t bytes = 0;
  template <class T> T* as() const { return static_cast<T*>(data); }
};

// Its length in bytes, then the bytes; a length of -1 is no array.
Array array() {
  const int64_t bytes = number();
  if (bytes < 0) return {};
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), room = (bytes + page - 1) / page * page;
  void* memory = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory");
  char* end = static_cast<char*>(memory) + room;
  if (mprotect(end, page, PROT_NONE) != 0) fail("no forbidden page");
  read(end - bytes, bytes);
  return {end - bytes, static_cast<size_t>(bytes)};
}

using Part = std::vector<Array>;

std::vector<Part> parts_of_the_bank() {
  std::vector<Part> parts(size());
  for (Part& part : parts) {
    part.resize(size());
    for (Array& one : part) one = array();
  }
  return parts;
}

// What Job points to and does not hold.
struct Kept {
  std::vector<Sketch> sketches;
  std::deque<Bounds> shapes;
  std::vector<int32_t> owners;
};

void read_targets(Job& job) {
  const Array targets = array(), weights = array();
  job.targets = targets.as<float>();
  job.target_weights = weights.as<float>();
  job.queries = weights.bytes / 4;
  job.dim = targets.bytes / 4 / job.queries;
}

void read_probes(Job& job) {
  const Array vectors = array(), weights = array();
  job.vectors = vectors.as<float>();
  job.weights = weights.as<float>();
  job.probes = weights.bytes / 4;
}

void add_vectors(Job& job, const Part& part) {
  job.globals = part[0].as<uint16_t>();
  job.locals = part[1].data;
  job.scales = part[2].as<float>();
  job.stored = part[0].bytes / 2 / job.dim;
}

// Each of these reads the arguments after the parts, as _kernel.pyi has them, and returns where the answer goes.
Array read_score(Job& common, std::vector<Job>& jobs, const std::vector<Part>& parts, Kept& kept) {
  common.count = size();
  read_targets(common);
  common.fine = size();
  read_probes(common);
  common.sharpness = array().as<float>();
  common.owner = array().as<int32_t>();
  const Array scores = array(), places = array(), numbers = array();
  common.scores = scores.as<float>();
  common.stride = scores.bytes / 4 / common.queries;
  if (!read_sketches(places.as<int64_t>(), places.bytes / 32, numbers.as<float>(), numbers.bytes / 4, common,
                     kept.sketches))
    fail("a sketch does not fit");
  common.sketches = kept.sketches.data();
  common.sketched = kept.sketches.size();
  jobs.assign(parts.size(), common);
  for (size_t i = 0; i < parts.size(); ++i) add_vectors(jobs[i], parts[i]);
  return scores;
}

Array read_means(Job& common, std::vector<Job>& jobs, const std::vector<Part>& parts, Kept&) {
  common.count = size();
  common.dim = size();
  const Array vectors = array(), sharpnesses = array(), means = array();
  common.vectors = vectors.as<float>();
  common.probes = common.fine = vectors.bytes / 4 / common.dim;
  common.sharpnesses = sharpnesses.as<float>();
  common.taus = sharpnesses.bytes / 4;
  common.means = means.as<float>();
  common.stride = means.bytes / 4 / (common.taus * common.probes);
  jobs.assign(parts.size(), common);
  for (size_t i = 0; i < parts.size(); ++i) add_vectors(jobs[i], parts[i]);
  return means;
}

Array read_bounds(Job& common, std::vector<Job>& jobs, const std::vector<Part>& parts, Kept& kept) {
  const size_t places = size(), blocks = size(), first = size(), second = size();
  read_targets(common);
  const Array lengths = array();
  common.fine = size();
  read_probes(common);
  common.owner = array().as<int32_t>();
  const Array lanes = array(), floors = array(), found = array();
  common.scores = found.as<float>();
  common.stride = found.bytes / 4 / common.queries;
  Bounds shape = shape_of(common, places, blocks, first, second, lanes.as<float>());
  shape.targets = lengths.as<float>();
  shape.floors = floors.as<double>();
  common.count = shape.records[0].shares;
  kept.owners = owners_of(common);
  shape.owners = kept.owners.data();
  jobs.assign(parts.size(), common);
  for (size_t i = 0; i < parts.size(); ++i) {
    shape.pooled = parts[i][1].as<int8_t>();
    shape.records[0].data = parts[i][2].as<uint8_t>();
    shape.records[1].data = parts[i][3].as<uint8_t>();
    kept.shapes.push_back(shape);
    jobs[i].bounds = &kept.shapes.back();
    jobs[i].globals = parts[i][0].as<uint16_t>();
    jobs[i].stored = parts[i][1].bytes / (2 * common.dim);
  }
  return found;
}

Array read_pooled(Job& common, std::vector<Job>& jobs, const std::vector<Part>& parts, Kept&) {
  common.count = 1;
  common.dim = size();
  const Array wanted = array(), found = array();
  common.wanted = wanted.as<int16_t>();
  common.queries = wanted.bytes / (4 * common.dim);
  common.scores = found.as<float>();
  common.stride = found.bytes / (8 * common.queries);
  jobs.assign(parts.size(), common);
  for (size_t i = 0; i < parts.size(); ++i) {
    jobs[i].pooled = parts[i][0].as<int8_t>();
    jobs[i].stored = parts[i][0].bytes / (2 * common.dim);
  }
  return found;
}

struct Function {
  const char* name;
  Array (*read)(Job& common, std::vector<Job>& jobs, const std::vector<Part>& parts, Kept& kept);
};
const Function kFunctions[] = {{"score", read_score}, {"means", read_means}, {"bounds", read_bounds}, {"pooled", read_pooled}};

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "isas") == 0) {
    for (const Isa* isa : isas_here()) std::printf("%s\n", isa->name);
    return 0;
  }
  const std::string name = text(), set = text();
  const Isa* isa = find_isa(set.c_str());
  if (!isa) fail("this processor or build has no instruction set " + set);
  const size_t threads = size();
  const std::vector<Part> parts = parts_of_the_bank();
  Job common{};
  std::vector<Job> jobs;
  Kept kept;
  for (const Function& function : kFunctions) {
    if (name != function.name) continue;
    const Array answer = function.read(common, jobs, parts, kept);
    size_t before = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Array& rows = parts[i].back();
      jobs[i].rows = rows.as<int64_t>();
      jobs[i].pictures = rows.data ? rows.bytes / 8 : jobs[i].stored;
      (jobs[i].means ? jobs[i].means : jobs[i].scores) += before;
      before += jobs[i].pictures;
    }
    const std::string problem = jobs.empty() ? "" : sweep(jobs, *isa, threads);
    if (!problem.empty()) fail(problem);
    std::fwrite(answer.data, 1, answer.bytes, stdout);
    return 0;
  }
  fail("there is no function " + name);
}
