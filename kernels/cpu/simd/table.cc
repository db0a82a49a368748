#include "kernels/cpu/simd/table.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

namespace trident::cpu::simd {

namespace sse2 {
Table make_table();
}
#ifdef TRIDENT_ONLY_SSE2  // a build without the others
constexpr bool only_sse2 = true;
namespace avx2 = sse2;
namespace avx512 = sse2;
#else
constexpr bool only_sse2 = false;
namespace avx2 {
Table make_table();
}
namespace avx512 {
Table make_table();
}
#endif

const char* name_of(Isa isa) {
  static constexpr const char* names[] = {"sse2", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

bool supported(Isa isa) {
  switch (isa) {
    case Isa::sse2:
      return true;
    case Isa::avx2:
      return !only_sse2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case Isa::avx512:
      return supported(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
  }
  return false;
}

Isa best_isa() {
  return supported(Isa::avx512) ? Isa::avx512 : supported(Isa::avx2) ? Isa::avx2 : Isa::sse2;
}

bool has_avx512_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;  // eax of subleaf 1 of leaf 7
  return supported(Isa::avx512) && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
         (a & 1u << 5) != 0;
}

bool allows_amx() {
  static const bool allowed = [] {
    constexpr unsigned bf16 = 1u << 22, tiles = 1u << 24;  // in edx of leaf 7
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!has_avx512_bf16() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & bf16) == 0 || (d & tiles) == 0) return false;
    // Linux keeps the tiles of a process that has asked for them
    // (Documentation/arch/x86/xstate.rst).
    constexpr long request = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
  }();
  return allowed;
}

const Table& table(Isa isa) {
  if (!supported(isa)) throw Error("kernels: this processor lacks the instruction set asked for");
  static const Table sse2_table = sse2::make_table();
  switch (isa) {
    case Isa::avx2: {
      static const Table avx2_table = avx2::make_table();
      return avx2_table;
    }
    case Isa::avx512: {
      static const Table avx512_table = avx512::make_table();
      return avx512_table;
    }
    case Isa::sse2:
      break;
  }
  return sse2_table;
}

}  // namespace trident::cpu::simd
