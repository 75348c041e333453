// What a kernel is given, and the form in which it wants the probes. No dependencies but the standard library.
#pragma once
#if !defined(__GNUC__)  // clang says that it is one too
#error "the kernel uses the vector types of gcc and clang; setup.py leaves it out where the compiler is another"
#endif
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

namespace tapr {

constexpr size_t kLanes = 16;   // probes that are worked on side by side; one probe keeps to one lane
constexpr size_t kPanel = 4;    // vectors of lanes in a panel: what a register tile of AVX-512 holds
constexpr size_t kPadRows = 64; // staged rows are padded so that tiles need no tails
constexpr size_t kTile = 1024;  // bytes of a tile

// Memory on cache-line borders, zero at first.
template <class T> class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  T* reserve(size_t count) {
    if (count > size_) {
      std::free(data_);
      const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
      data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
      size_ = data_ ? count : 0;
      if (!data_) throw std::bad_alloc();
      for (size_t i = 0; i < count; ++i) data_[i] = T(0);
    }
    return data_;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// How probes are laid out, so that each kernel reads them front to back.
//   f32   [vector][k][lane]                                  float
//   i16   [vector][k / 2][lane][2]                           one whole number of 16 bits each: u = unit * number
//   i8    [vector][k / 64][high, low][k / 4 % 16][lane][4]   two signed bytes per number: u = unit * (high + low / 254)
//   u8    the same, each byte 128 higher                     for VNNI, which multiplies unsigned by signed
//   bf16  [vector][k / 32][high, low][k / 2 % 16][lane][2]   two bfloat16 per number: u = high + low
// All but f32 are made of tiles of 16 steps of 64 bytes, as AMX loads them.
enum class Form { f32, i16, i8, u8, bf16 };

// The many probes of a query, by their shares of a few directions, which stand among the probes side by side in one panel.
struct Sketch {
  size_t query, first, directions;
  size_t probes;         // a multiple of kLanes; those past the last have weight 0
  float limit;           // of a local vector: the square of its length, at most
  const float* weights;  // (probes,)
  const float* shares;   // (directions + 1, probes); the last row: what is beside all directions
};

// Pictures' records, of `stride` bytes each, as tapr/store/summary.py lays them out: float scales and mean shares (shares),
// a step and, in an outline, what the global vector's bytes lose; bytes of mean rests (blocks), shares (M, shares), rests
// (M, blocks) and the codes of directions as nibbles, the numbers of the first half of d low and those of the second high.
// An outline has one share more than directions: its first direction is the mean of the picture's local vectors.
struct Records {
  const uint8_t* data;
  size_t shares, directions, stride;
  bool outline() const { return shares > directions; }
};

// The probes that bounds are made for, rounded up to whole vectors; those past the last have weight 0.
struct Lanes {
  size_t count;
  const float *weights, *signs;  // (count,); a sign is -1 or 1
  const float* offsets;          // (count,): what the best place is lowered by; 0 where the weight is positive
  // (count,): what rounding takes from the products of a probe's leading byte, and of both; negative where the weight is
  const float *lost_by_byte, *lost_by_both;
  const float* parts;            // (blocks, count): how long a probe is in each; negative where the weight is
};

// What turns the dot products of a picture's directions with the probes into the most that its score can be.
struct Bounds {
  Records records[2];    // the second adds directions to the first, and its rests are those beside both
  const int8_t* pooled;  // (B, 2, d): in the second half the mean of the local vectors
  size_t places, blocks;
  Lanes lanes;
  const int32_t* owners;  // (vectors of lanes,): whose probes they are; -1: of several queries
  const float* targets;   // (Q,): the length of each query's target, with its weight
  const double* floors;   // (Q,): what reaches them is looked at closer; null: nothing is
};

struct Job {
  // the bank: B pictures of M local vectors of d numbers
  const uint16_t* globals;  // (B, d) fp16
  const void* locals;       // (B, M, d) fp16, or int8 when `scales` is given
  const float* scales;      // (B, M) or null
  size_t stored, count, dim;  // B, M, d
  // which of them to score
  const int64_t* rows;  // (pictures,), or null for all
  size_t pictures;
  // the queries' targets, and the probes of all queries one after the other
  size_t queries, probes;
  size_t fine;  // so many, from the first on, are read in full; of the others, and then of fp16 numbers, the leading part
  const float* targets;         // (Q, d)
  const float* target_weights;  // (Q,)
  const float* vectors;         // (P, d)
  const float* weights;         // (P,)
  const float* sharpness;       // (P,) log2(e) / tau
  const int32_t* owner;         // (P,) the query of each probe
  const Sketch* sketches;       // what they stand for is added at its most
  size_t sketched;
  float* scores;                // (Q, pictures), `stride` numbers from one query's to the next's
  size_t stride;
  // or, instead of scores, what they are made of: every probe's mean at several taus
  float* means;              // (T, P, pictures), `stride` numbers from one probe's to the next's; null: scores
  const float* sharpnesses;  // (T,); 0 stands for the best place alone
  size_t taus;

  // or, instead of scores, what they cannot exceed: `count` is the number of an outline's directions, `locals` and `scales`
  // are null, and the targets' terms by bytes stand in `scores` already
  const Bounds* bounds;
  // or the products of two vectors per picture with two per query, whole numbers both; two lines of `scores` per query
  const int8_t* pooled;   // (B, 2, d)
  const int16_t* wanted;  // (Q, 2, d), so small that no sum leaves 32 bits

  bool coarse() const { return fine < probes; }
  bool codes() const { return scales || bounds; }  // int8 and not fp16
  size_t row(size_t picture) const { return rows ? static_cast<size_t>(rows[picture]) : picture; }
  bool side_by_side(size_t first, size_t number) const {
    for (size_t i = 1; i < number; ++i)
      if (row(first + i) != row(first) + i) return false;
    return true;
  }
};

struct Panel {
  size_t first;    // probe in the first lane
  size_t vectors;  // 1..kPanel
  const void* data;  // of its first vector
};

struct Packed {
  Form form;
  size_t depth;  // d rounded up to what the form needs; the rest is zeros
  std::vector<Panel> panels;
  Buffer<float> f32;
  Buffer<int8_t> i8;
  Buffer<int16_t> i16;
  Buffer<uint16_t> bf16;
  Buffer<float> sharpness;  // by lane
  Buffer<float> unit;       // by lane, forms i8, u8 and i16
};

void pack(const Job& job, Form form, Packed& packed);

// Asks for what staging will read soon, into level 2: past the page that the processor itself looks ahead in.
inline void look_ahead(const void* at) { __builtin_prefetch(static_cast<const char*>(at) + 4096, 0, 2); }

// What will be read next: asked for a little at a time, while the processor computes. It goes to level 2.
class Ahead {
 public:
  // `steps`: how often step() will be called, at least about
  void set(const void* from, size_t bytes, size_t steps) {
    at_ = static_cast<const char*>(from);
    end_ = at_ + bytes;
    part_ = (bytes / kLine + steps) / (steps + 1) * kLine;
  }
  void step() {
    const char* until = static_cast<size_t>(end_ - at_) < part_ ? end_ : at_ + part_;
    for (; at_ < until; at_ += kLine) __builtin_prefetch(at_, 0, 2);
  }

 private:
  static constexpr size_t kLine = 64;
  const char *at_ = nullptr, *end_ = nullptr;
  size_t part_ = 0;
};

// What a thread works with; kept from one run of pictures to the next.
struct Scratch {
  Ahead ahead;
  Buffer<float> dots, rows, scales, wide, means, places, unpacked_scales, outlined, most;
  Buffer<int8_t> codes, unpacked;
  Buffer<int16_t> words, known;
  const int8_t* codes_at = nullptr;  // where the group's codes lie: there, or in the bank itself
  Buffer<int32_t> code_sums, tile, pairs;
  Buffer<uint16_t> halves;
  std::vector<double> scores;
};

// One instruction set: which form it wants for fp16 and for int8 banks, its work on pictures [begin, end), and the form for
// a coarse reading of fp16 numbers.
struct Isa {
  const char* name;
  bool (*supported)();
  Form vectors_form, codes_form;
  void (*score)(const Job&, const Packed&, Scratch&, size_t begin, size_t end);
  Form coarse_form = Form::f32;

  Form form_for(const Job& job) const { return job.codes() ? codes_form : job.coarse() ? coarse_form : vectors_form; }
};

extern const Isa portable;
#if defined(__x86_64__)
#define TAPR_X86 1
extern const Isa avx2, avx512, avx512vnni;
#if defined(__has_include)
#if __has_include(<avxvnniintrin.h>)  // gcc 11, clang 12
#define TAPR_AVXVNNI 1
extern const Isa avxvnni;
#endif
#endif
#if defined(__linux__) && defined(__has_include)
#if __has_include(<amxtileintrin.h>) || __has_include(<amxintrin.h>)  // gcc, clang
#define TAPR_AMX 1
extern const Isa amx;
#endif
#endif
#elif defined(__aarch64__)
#define TAPR_NEON 1
extern const Isa neon;
#if !defined(__clang__) || __clang_major__ >= 16 || defined(__ARM_FEATURE_DOTPROD)  // older ones hide the intrinsics
#define TAPR_DOTPROD 1
extern const Isa neondot;
#endif
#endif

// How many pictures are staged at once: their rows, as staged, and their dot products should stay in the level 2 cache.
inline size_t group_size(const Job& job, Form form) {
  const size_t number = form == Form::f32 ? 4 : form == Form::i16 ? 2 : form == Form::bf16 ? (job.coarse() ? 2 : 4) : 1;
  const size_t bytes = job.count * (job.dim * number + kPanel * kLanes * sizeof(float));
  const size_t group = (size_t(384) << 10) / bytes;
  return group < 1 ? 1 : group > 32 ? 32 : group;
}

}  // namespace tapr

// Between these two, functions may use the instruction sets of `list`. Standard headers come before, and the question
// whether the processor has these sets comes after: a processor without them could not run it.
#define TAPR_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define TAPR_TARGET(list) TAPR_PRAGMA(clang attribute push(__attribute__((target(list))), apply_to = function))
#define TAPR_TARGET_END TAPR_PRAGMA(clang attribute pop)
#else
#define TAPR_TARGET(list) TAPR_PRAGMA(GCC push_options) TAPR_PRAGMA(GCC target(list))
#define TAPR_TARGET_END TAPR_PRAGMA(GCC pop_options)
#endif
