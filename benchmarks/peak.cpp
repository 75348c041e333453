// What the processor's multipliers can do at most: products per second of numbers that lie in registers, by some threads.
//
//   g++ -O2 -pthread benchmarks/peak.cpp -o peak && ./peak 2     ->   float32 218.1 words 401.2 bytes 0.0   (10^9 products)
//
// words: 16 bits, the sums added (AVX2) or not (VNNI); bytes: VNNI, 0 without it. Every loop has ten sums, so that none waits.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

static constexpr int kSums = 10, kTurns = 1 << 20, kRounds = 12;
#define HELD(a) \
  asm volatile("" : "+v"(a[0]), "+v"(a[1]), "+v"(a[2]), "+v"(a[3]), "+v"(a[4]), "+v"(a[5]), "+v"(a[6]), "+v"(a[7]), \
               "+v"(a[8]), "+v"(a[9]))

template <class Turn> static double best_rate(double products, Turn turn) {
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    turn();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return products * kSums * kTurns / best / 1e9;
}

#define LOOP(NAME, TARGET, TYPE, ZERO, PRODUCTS, STEP)                 \
  __attribute__((target(TARGET), noinline)) static void NAME##_turn() { \
    TYPE sum[kSums], one = ZERO;                                       \
    _Pragma("GCC unroll 10") for (int i = 0; i < kSums; ++i) sum[i] = ZERO; \
    for (int turn = 0; turn < kTurns; ++turn) {                        \
      asm volatile("" : "+v"(one));                                    \
      _Pragma("GCC unroll 10") for (int i = 0; i < kSums; ++i) { STEP; } \
      HELD(sum);                                                       \
    }                                                                  \
  }                                                                    \
  static double NAME() { return best_rate(PRODUCTS, NAME##_turn); }

LOOP(float256, "avx2,fma", __m256, _mm256_setzero_ps(), 8, sum[i] = _mm256_fmadd_ps(one, one, sum[i]))
LOOP(words256, "avx2", __m256i, _mm256_setzero_si256(), 16,
     __m256i product; asm volatile("vpmaddwd %1, %1, %0" : "=x"(product) : "x"(one));
     sum[i] = _mm256_add_epi32(sum[i], product))
LOOP(float512, "avx512f", __m512, _mm512_setzero_ps(), 16, sum[i] = _mm512_fmadd_ps(one, one, sum[i]))
LOOP(words512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), 32, sum[i] = _mm512_dpwssd_epi32(sum[i], one, one))
LOOP(bytes512, "avx512f,avx512vnni", __m512i, _mm512_setzero_si512(), 64, sum[i] = _mm512_dpbusd_epi32(sum[i], one, one))

static double together(int threads, double (*rate)()) {
  std::vector<double> found(threads);
  std::vector<std::thread> others;
  for (int i = 0; i < threads; ++i) others.emplace_back([&, i] { found[i] = rate(); });
  double sum = 0;
  for (int i = 0; i < threads; ++i) others[i].join(), sum += found[i];
  return sum;
}

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  const bool wide = __builtin_cpu_supports("avx512f") && !(count > 2), vnni = wide && __builtin_cpu_supports("avx512vnni");
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  std::printf("float32 %.1f words %.1f bytes %.1f\n", together(threads, wide ? float512 : float256),
              together(threads, vnni ? words512 : words256), vnni ? together(threads, bytes512) : 0.0);
}
