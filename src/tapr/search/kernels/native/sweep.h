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

// How records and probes lie in a call for bounds: directions of outlines and of summaries, and by lane weights, signs, offsets,
// what rounding takes from one byte and from two, and parts.
Bounds shape_of(const Job& job, size_t places, size_t blocks, size_t first, size_t second, const float* lanes);

std::vector<int32_t> owners_of(const Job& job);  // see Bounds

// One sweep over all parts of a bank, for the same queries. Returns what went wrong, or "".
std::string sweep(const std::vector<Job>& jobs, const Isa& isa, size_t threads);

}  // namespace tapr
