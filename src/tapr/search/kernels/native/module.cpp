// tapr.search.kernels._kernel: scores of rows of a bank, the means that scores are made of, and what runs on this processor.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <deque>
#include <string>

#include "sweep.h"

namespace {

using namespace tapr;

struct View {
  Py_buffer buffer{};
  View() = default;
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View() {
    if (buffer.obj) PyBuffer_Release(&buffer);
  }
  template <class T> T* as() const { return static_cast<T*>(buffer.buf); }
  size_t count(size_t size) const { return static_cast<size_t>(buffer.len) / size; }
  bool holds(size_t count, size_t size) const { return static_cast<size_t>(buffer.len) == count * size; }
};

// Runs the jobs without the GIL, and turns a problem into an exception.
PyObject* swept(const std::vector<Job>& jobs, const Isa& isa, Py_ssize_t threads) {
  std::string problem;
  Py_BEGIN_ALLOW_THREADS
  problem = sweep(jobs, isa, threads < 1 ? 1 : static_cast<size_t>(threads));
  Py_END_ALLOW_THREADS
  if (!problem.empty()) return PyErr_Format(PyExc_MemoryError, "%s", problem.c_str());
  Py_RETURN_NONE;
}

// Which of the stored pictures a part names; false, with an exception set, where it names one that is not there.
bool add_rows(const View& rows, Job& job) {
  job.rows = rows.as<const int64_t>();
  job.pictures = job.rows ? rows.count(8) : job.stored;
  for (size_t i = 0; job.rows && i < job.pictures; ++i)
    if (job.rows[i] < 0 || static_cast<size_t>(job.rows[i]) >= job.stored) {
      PyErr_Format(PyExc_ValueError, "there is no row %lld", static_cast<long long>(job.rows[i]));
      return false;
    }
  return true;
}

// The queries of a call and where their answers go.
struct Asked {
  View targets, target_weights, vectors, weights, owner, scores;

  void add_to(Job& job, Py_ssize_t fine) const {
    job.queries = target_weights.count(4);
    job.probes = weights.count(4);
    job.dim = job.queries ? targets.count(4) / job.queries : 0;
    job.fine = fine < 0 ? 0 : static_cast<size_t>(fine);
    job.targets = targets.as<const float>();
    job.target_weights = target_weights.as<const float>();
    job.vectors = vectors.as<const float>();
    job.weights = weights.as<const float>();
    job.owner = owner.as<const int32_t>();
    job.scores = scores.as<float>();
    job.stride = job.queries ? scores.count(4) / job.queries : 0;
  }

  bool fits(const Job& job, size_t pictures) const {
    return targets.holds(job.queries * job.dim, 4) && vectors.holds(job.probes * job.dim, 4) &&
           owner.holds(job.probes, 4) && scores.holds(job.queries * pictures, 4);
  }

  bool owners_fit(const Job& job) const {
    for (size_t i = 0; i < job.probes; ++i)
      if (job.owner[i] < 0 || static_cast<size_t>(job.owner[i]) >= job.queries) return false;
    return true;
  }
};

// A part of the bank as Python hands it over: (globals, locals, scales or None, rows or None).
struct Part {
  View globals, locals, scales, rows;
};

// Adds what the part says to the job; false, with an exception set, when it makes no sense.
bool add_part(PyObject* tuple, Part& part, Job& job) {
  if (!PyArg_ParseTuple(tuple, "y*y*z*z*", &part.globals.buffer, &part.locals.buffer, &part.scales.buffer,
                        &part.rows.buffer))
    return false;
  const bool codes = part.scales.buffer.buf != nullptr;
  job.stored = part.globals.count(2) / job.dim;
  const size_t vectors = job.stored * job.count;
  if (!part.globals.holds(job.stored * job.dim, 2) || !part.locals.holds(vectors * job.dim, codes ? 1 : 2) ||
      (codes && !part.scales.holds(vectors, 4))) {
    PyErr_SetString(PyExc_ValueError, "the arrays' sizes do not agree");
    return false;
  }
  if (!add_rows(part.rows, job)) return false;
  job.globals = part.globals.as<const uint16_t>();
  job.locals = part.locals.as<const void>();
  job.scales = part.scales.as<const float>();
  return true;
}

PyObject* score(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* list;
  Py_ssize_t threads, count, fine;
  Asked asked;
  View sharpness, places, numbers;
  if (!PyArg_ParseTuple(arguments, "snO!ny*y*ny*y*y*y*w*y*y*", &name, &threads, &PyList_Type, &list, &count,
                        &asked.targets.buffer, &asked.target_weights.buffer, &fine, &asked.vectors.buffer,
                        &asked.weights.buffer, &sharpness.buffer, &asked.owner.buffer, &asked.scores.buffer, &places.buffer,
                        &numbers.buffer))
    return nullptr;
  const Isa* isa = find_isa(name);
  if (!isa) return PyErr_Format(PyExc_ValueError, "this processor or build has no instruction set %s", name);

  Job common{};
  common.count = static_cast<size_t>(count);
  common.sharpness = sharpness.as<const float>();
  asked.add_to(common, fine);
  if (common.queries == 0 || PyList_GET_SIZE(list) == 0) Py_RETURN_NONE;
  if (common.dim == 0 || count < 1) return PyErr_Format(PyExc_ValueError, "vectors need at least one number");
  std::vector<Sketch> sketches;
  if (!read_sketches(places.as<const int64_t>(), places.count(32), numbers.as<const float>(), numbers.count(4), common,
                     sketches))
    return PyErr_Format(PyExc_ValueError, "a sketch does not fit");
  common.sketches = sketches.data();
  common.sketched = sketches.size();

  std::deque<Part> parts;
  std::vector<Job> jobs;
  size_t pictures = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    parts.emplace_back();
    jobs.push_back(common);
    if (!add_part(PyList_GET_ITEM(list, i), parts.back(), jobs.back())) return nullptr;
    jobs.back().scores += pictures;
    pictures += jobs.back().pictures;
  }
  if (!sharpness.holds(common.probes, 4) || !asked.fits(common, pictures))
    return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
  for (const Job& job : jobs)
    if (!job.scales != !jobs[0].scales) return PyErr_Format(PyExc_ValueError, "codes and vectors do not mix");
  if (!asked.owners_fit(common)) return PyErr_Format(PyExc_ValueError, "a probe belongs to no query");

  return swept(jobs, *isa, threads);
}

PyObject* means(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* list;
  Py_ssize_t threads, count, dim;
  View vectors, sharpnesses, found;
  if (!PyArg_ParseTuple(arguments, "snO!nny*y*w*", &name, &threads, &PyList_Type, &list, &count, &dim, &vectors.buffer,
                        &sharpnesses.buffer, &found.buffer))
    return nullptr;
  const Isa* isa = find_isa(name);
  if (!isa) return PyErr_Format(PyExc_ValueError, "this processor or build has no instruction set %s", name);
  if (dim < 1 || count < 1) return PyErr_Format(PyExc_ValueError, "vectors need at least one number");

  Job common{};
  common.count = static_cast<size_t>(count);
  common.dim = static_cast<size_t>(dim);
  common.probes = common.fine = vectors.count(4) / common.dim;
  common.vectors = vectors.as<const float>();
  common.sharpnesses = sharpnesses.as<const float>();
  common.taus = sharpnesses.count(4);
  common.means = found.as<float>();
  if (common.probes == 0 || common.taus == 0 || PyList_GET_SIZE(list) == 0) Py_RETURN_NONE;

  std::deque<Part> parts;
  std::vector<Job> jobs;
  size_t pictures = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    parts.emplace_back();
    jobs.push_back(common);
    if (!add_part(PyList_GET_ITEM(list, i), parts.back(), jobs.back())) return nullptr;
    if (jobs.back().scales) return PyErr_Format(PyExc_ValueError, "means are made of vectors, not of codes");
    jobs.back().means += pictures;
    pictures += jobs.back().pictures;
  }
  if (!vectors.holds(common.probes * common.dim, 4) || !found.holds(common.taus * common.probes * pictures, 4))
    return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
  for (Job& job : jobs) job.stride = pictures;

  return swept(jobs, *isa, threads);
}

// A part of a bank's records as Python hands it over: (globals or None, pooled, outlines, summaries or None, rows or None).
struct SummaryPart {
  View globals, pooled, outlines, summaries, rows;
};

PyObject* bounds(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* list;
  Py_ssize_t threads, places, blocks, first, second, fine;
  Asked asked;
  View lengths, lanes, floors;
  if (!PyArg_ParseTuple(arguments, "snO!nnnny*y*y*ny*y*y*y*z*w*", &name, &threads, &PyList_Type, &list, &places, &blocks,
                        &first, &second, &asked.targets.buffer, &asked.target_weights.buffer, &lengths.buffer, &fine,
                        &asked.vectors.buffer, &asked.weights.buffer, &asked.owner.buffer, &lanes.buffer, &floors.buffer,
                        &asked.scores.buffer))
    return nullptr;
  const Isa* isa = find_isa(name);
  if (!isa) return PyErr_Format(PyExc_ValueError, "this processor or build has no instruction set %s", name);
  Job common{};
  asked.add_to(common, fine);
  if (common.queries == 0 || PyList_GET_SIZE(list) == 0) Py_RETURN_NONE;
  if (common.dim == 0 || places < 1 || blocks < 1 || first < 1 || second < 0)
    return PyErr_Format(PyExc_ValueError, "a summary needs directions, places and blocks");

  Bounds shape = shape_of(common, static_cast<size_t>(places), static_cast<size_t>(blocks), static_cast<size_t>(first),
                          static_cast<size_t>(second), lanes.as<const float>());
  shape.targets = lengths.as<const float>();
  shape.floors = floors.as<const double>();
  common.count = shape.records[0].shares;

  std::deque<SummaryPart> parts;
  std::deque<Bounds> shapes;  // a job keeps the address of its own
  std::vector<Job> jobs;
  size_t pictures = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    parts.emplace_back();
    SummaryPart& part = parts.back();
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "z*y*y*z*z*", &part.globals.buffer, &part.pooled.buffer,
                          &part.outlines.buffer, &part.summaries.buffer, &part.rows.buffer))
      return nullptr;
    shapes.push_back(shape);
    jobs.push_back(common);
    Job& job = jobs.back();
    Bounds& own = shapes.back();
    job.bounds = &own;
    job.stored = part.pooled.count(1) / (2 * job.dim);
    job.globals = part.globals.as<const uint16_t>();
    own.pooled = part.pooled.as<const int8_t>();
    own.records[0].data = part.outlines.as<const uint8_t>();
    own.records[1].data = part.summaries.as<const uint8_t>();
    if (!part.pooled.holds(job.stored * 2 * job.dim, 1) || !part.outlines.holds(job.stored, own.records[0].stride) ||
        (shape.floors && (!part.globals.holds(job.stored * job.dim, 2) ||
                          (second && !part.summaries.holds(job.stored, own.records[1].stride)))))
      return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
    if (!add_rows(part.rows, job)) return nullptr;
    job.scores += pictures;
    pictures += job.pictures;
  }
  if (!lanes.holds((5 + shape.blocks) * shape.lanes.count, 4) || !lengths.holds(common.queries, 4) ||
      (shape.floors && !floors.holds(common.queries, 8)) || !asked.fits(common, pictures))
    return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
  if (!asked.owners_fit(common)) return PyErr_Format(PyExc_ValueError, "a probe belongs to no query");
  const std::vector<int32_t> owners = owners_of(common);
  for (Bounds& own : shapes) own.owners = owners.data();
  return swept(jobs, *isa, threads);
}

PyObject* pooled(PyObject*, PyObject* arguments) {
  const char* name;
  PyObject* list;
  Py_ssize_t threads, dim;
  View wanted, found;
  if (!PyArg_ParseTuple(arguments, "snO!ny*w*", &name, &threads, &PyList_Type, &list, &dim, &wanted.buffer, &found.buffer))
    return nullptr;
  const Isa* isa = find_isa(name);
  if (!isa) return PyErr_Format(PyExc_ValueError, "this processor or build has no instruction set %s", name);
  if (dim < 1) return PyErr_Format(PyExc_ValueError, "vectors need at least one number");
  Job common{};
  common.count = 1;
  common.dim = static_cast<size_t>(dim);
  common.wanted = wanted.as<const int16_t>();
  common.queries = wanted.count(2) / (2 * common.dim);
  common.scores = found.as<float>();
  if (common.queries == 0 || PyList_GET_SIZE(list) == 0) Py_RETURN_NONE;
  common.stride = found.count(4) / (2 * common.queries);

  struct PooledPart {
    View codes, rows;
  };
  std::deque<PooledPart> parts;
  std::vector<Job> jobs;
  size_t pictures = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    parts.emplace_back();
    PooledPart& part = parts.back();
    if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "y*z*", &part.codes.buffer, &part.rows.buffer)) return nullptr;
    jobs.push_back(common);
    Job& job = jobs.back();
    job.stored = part.codes.count(1) / (2 * common.dim);
    if (!part.codes.holds(job.stored, 2 * common.dim))
      return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
    if (!add_rows(part.rows, job)) return nullptr;
    job.pooled = part.codes.as<const int8_t>();
    job.scores += pictures;
    pictures += job.pictures;
  }
  if (!wanted.holds(common.queries * 2 * common.dim, 2) || !found.holds(common.queries * 2 * pictures, 4))
    return PyErr_Format(PyExc_ValueError, "the arrays' sizes do not agree");
  return swept(jobs, *isa, threads);
}

PyObject* isas(PyObject*, PyObject*) {
  PyObject* names = PyList_New(0);
  for (const Isa* isa : isas_here()) {
    if (!names) break;
    PyObject* name = PyUnicode_FromString(isa->name);
    if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
    Py_XDECREF(name);
  }
  return names;
}

PyMethodDef methods[] = {
    {"score", score, METH_VARARGS,
     "score(isa, threads, [(globals, locals, scales, rows), ...], M, targets, target_weights, fine, probes, weights, "
     "sharpness, owner, scores, sketches, numbers of sketches)"},
    {"means", means, METH_VARARGS,
     "means(isa, threads, [(globals, locals, None, rows), ...], M, d, probes, sharpnesses, means)"},
    {"bounds", bounds, METH_VARARGS,
     "bounds(isa, threads, [(globals, pooled, outlines, summaries, rows), ...], M, blocks, directions of outlines, of "
     "summaries, targets, target_weights, lengths of targets, fine, probes, weights, owner, (weights, signs, offsets, lost by "
     "one byte, lost by two, parts) by lane, floors, bounds)"},
    {"pooled", pooled, METH_VARARGS, "pooled(isa, threads, [(codes, rows), ...], length, wanted, products)"},
    {"isas", isas, METH_NOARGS, "Instruction sets that run here, the fastest first."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_kernel", "Scores rows of a bank.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__kernel() { return PyModule_Create(&module); }
