// The questions to the processor stand alone in this file, which is compiled for the plainest processor of its kind: code
// that may use a feature could not ask on a processor without it.
#include "processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace tapr {

#if defined(__x86_64__)

// clang 14 does not know this feature's name
static bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("fma") && has_f16c();
}

bool has_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

// Beside AVX2; no compiler's list of features has it before gcc 14.
bool has_avxvnni() {
  unsigned a, b, c, d;
  return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) != 0;
}

// The processor has it, and the system lets this process use it (Linux asks for permission to be requested).
bool has_amx() {
#if defined(__linux__)
  static const bool answer = [] {
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    unsigned a, b, c, d;
    if (!has_avx512() || !__builtin_cpu_supports("avx512bf16")) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if ((d & (bf16 | tile | int8)) != (bf16 | tile | int8)) return false;
    constexpr long request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return answer;
#else
  return false;
#endif
}

#elif defined(__aarch64__)

// SDOT: sums of four products of signed bytes.
bool has_dotprod() {
#if defined(__linux__)
  constexpr unsigned long asimddp = 1ul << 20;  // HWCAP_ASIMDDP, which old headers lack
  return (getauxval(AT_HWCAP) & asimddp) != 0;
#elif defined(__APPLE__)
  int answer = 0;
  size_t size = sizeof answer;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &answer, &size, nullptr, 0) == 0 && answer != 0;
#else
  return false;
#endif
}

#endif

}  // namespace tapr
