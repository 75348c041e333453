// What the Python module calls: the instruction sets that run here, and a sweep by one of them.
#pragma once
#include <string>
#include <vector>

#include "job.h"

namespace tapr {

std::vector<const Isa*> isas_here();  // the fastest first

const Isa* find_isa(const char* name);  // null where it does not run

// Sketches as Python hands them over: (S, 4) query, first direction, directions and probes; and of each its limit, weights
// and shares, one after the other. False where they make no sense. `job` has queries and probes.
bool read_sketches(const int64_t* places, size_t count, const float* numbers, size_t left, const Job& job,
                   std::vector<Sketch>& sketches);

// One sweep over all parts of a bank, for the same queries. Returns what went wrong, or "".
std::string sweep(const std::vector<Job>& jobs, const Isa& isa, size_t threads);

}  // namespace tapr
