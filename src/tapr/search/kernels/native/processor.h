// What the processor can do, asked when the kernel runs.
#pragma once

namespace tapr {

bool has_avx2();
bool has_avx512();
bool has_vnni();
bool has_avxvnni();
bool has_amx();
bool has_dotprod();

}  // namespace tapr
