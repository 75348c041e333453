// tapr.match._kernel: one function that scores a block, and what it can run on this processor.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <string>
#include <thread>

#include "job.h"

namespace {

using namespace tapr;

// best first
const Isa* const kAll[] = {
#if TAPR_AMX
    &amx,
#endif
#if TAPR_X86
    &avx512vnni, &avx512, &avx2,
#endif
    &portable};

const Isa* find_isa(const char* name) {
  for (const Isa* isa : kAll)
    if (std::strcmp(isa->name, name) == 0 && isa->supported()) return isa;
  return nullptr;
}

// Threads take runs of pictures from a common counter until none is left. Returns what went wrong, or "".
std::string run(const Job& job, const Isa& isa, size_t threads) {
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  Packed packed;
  try {
    pack(job, job.scales ? isa.codes_form : isa.vectors_form, packed);
  } catch (const std::exception& error) {
    return error.what();
  }
  const size_t group = group_size(job, packed.form);
  const size_t fair = job.pictures / (4 * threads) + 1;  // so that a short job, too, is shared out
  const size_t run_length = ((fair < 64 ? fair : 64) + group - 1) / group * group;
  const auto work = [&] {
    try {
      Scratch scratch;
      for (;;) {
        const size_t begin = next.fetch_add(run_length);
        if (begin >= job.pictures) return;
        const size_t end = begin + run_length < job.pictures ? begin + run_length : job.pictures;
        isa.score(job, packed, scratch, begin, end);
      }
    } catch (const std::exception&) {
      failed = true;
    }
  };
  const size_t useful = (job.pictures + run_length - 1) / run_length;
  std::vector<std::thread> others;
  try {
    for (size_t i = 1; i < threads && i < useful; ++i) others.emplace_back(work);
  } catch (const std::exception&) {
    // fewer threads than asked for: this one does the rest
  }
  work();
  for (std::thread& other : others) other.join();
  return failed ? "out of memory" : "";
}

struct View {
  Py_buffer buffer{};
  ~View() {
    if (buffer.obj) PyBuffer_Release(&buffer);
  }
  template <class T> T* as() const { return static_cast<T*>(buffer.buf); }
  bool holds(size_t count, size_t size) const { return static_cast<size_t>(buffer.len) == count * size; }
};

PyObject* score(PyObject*, PyObject* arguments) {
  const char* name;
  Py_ssize_t threads, count, fine;
  View globals, locals, scales, rows, targets, target_weights, vectors, weights, sharpness, owner, scores;
  if (!PyArg_ParseTuple(arguments, "sny*y*z*nz*y*y*ny*y*y*y*w*", &name, &threads, &globals.buffer, &locals.buffer,
                        &scales.buffer, &count, &rows.buffer, &targets.buffer, &target_weights.buffer, &fine,
                        &vectors.buffer, &weights.buffer, &sharpness.buffer, &owner.buffer, &scores.buffer))
    return nullptr;
  const Isa* isa = find_isa(name);
  if (!isa) return PyErr_Format(PyExc_ValueError, "this processor or build has no instruction set %s", name);

  Job job{};
  job.queries = static_cast<size_t>(target_weights.buffer.len) / 4;
  job.probes = static_cast<size_t>(weights.buffer.len) / 4;
  job.count = static_cast<size_t>(count);
  if (job.queries == 0) Py_RETURN_NONE;
  job.dim = static_cast<size_t>(targets.buffer.len) / 4 / job.queries;
  if (job.dim == 0 || count < 1) return PyErr_Format(PyExc_ValueError, "vectors need at least one number");
  job.fine = fine < 0 ? 0 : static_cast<size_t>(fine);
  job.stored = static_cast<size_t>(globals.buffer.len) / 2 / job.dim;
  job.rows = rows.as<const int64_t>();
  job.pictures = job.rows ? static_cast<size_t>(rows.buffer.len) / 8 : job.stored;
  const bool codes = scales.buffer.buf != nullptr;
  const size_t vectors_stored = job.stored * job.count;
  if (!globals.holds(job.stored * job.dim, 2) || !locals.holds(vectors_stored * job.dim, codes ? 1 : 2) ||
      (codes && !scales.holds(vectors_stored, 4)) || !targets.holds(job.queries * job.dim, 4) ||
      !vectors.holds(job.probes * job.dim, 4) || !sharpness.holds(job.probes, 4) || !owner.holds(job.probes, 4) ||
      !scores.holds(job.queries * job.pictures, 4))
    return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
  job.globals = globals.as<const uint16_t>();
  job.locals = locals.as<const void>();
  job.scales = scales.as<const float>();
  job.targets = targets.as<const float>();
  job.target_weights = target_weights.as<const float>();
  job.vectors = vectors.as<const float>();
  job.weights = weights.as<const float>();
  job.sharpness = sharpness.as<const float>();
  job.owner = owner.as<const int32_t>();
  job.scores = scores.as<float>();
  for (size_t i = 0; i < job.probes; ++i)
    if (job.owner[i] < 0 || static_cast<size_t>(job.owner[i]) >= job.queries)
      return PyErr_Format(PyExc_ValueError, "a probe belongs to no query");
  for (size_t i = 0; job.rows && i < job.pictures; ++i)
    if (job.rows[i] < 0 || static_cast<size_t>(job.rows[i]) >= job.stored)
      return PyErr_Format(PyExc_ValueError, "there is no row %lld", static_cast<long long>(job.rows[i]));

  std::string problem;
  Py_BEGIN_ALLOW_THREADS
  problem = run(job, *isa, threads < 1 ? 1 : static_cast<size_t>(threads));
  Py_END_ALLOW_THREADS
  if (!problem.empty()) return PyErr_Format(PyExc_MemoryError, "%s", problem.c_str());
  Py_RETURN_NONE;
}

PyObject* isas(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const Isa* isa : kAll) {
    if (!names || !isa->supported()) continue;
    PyObject* name = PyUnicode_FromString(isa->name);
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyMethodDef methods[] = {
    {"score", score, METH_VARARGS,
     "score(isa, threads, globals, locals, scales, M, rows, targets, target_weights, fine, probes, weights, "
     "sharpness, owner, scores)"},
    {"isas", isas, METH_NOARGS, "Instruction sets that run here, the fastest first."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Scores blocks of a bank.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&module); }
