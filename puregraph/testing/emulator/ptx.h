// PTX as the emulator reads it, after emulator.h: a function for each instruction, named after it, with the operands
// of its text. What a warp does together, and copies that are on their way, are in ptx.cpp.
//
// Source  NVIDIA, PTX ISA: cvt, cp.async, griddepcontrol, ldmatrix, mma.m16n8k16

extern "C" {
float emulator_fromHalf(unsigned short bits);
unsigned short emulator_toHalf(float x), emulator_toBfloat(float x);
unsigned emulator_toShared(const void* address, const char* where);
void emulator_copyAhead(unsigned to, const void* from, int size, int bytes, const char* where);
void emulator_commit();
void emulator_awaitLaunch();
void emulator_await(int later);
void emulator_loadMatrices(unsigned** to, unsigned row, bool isTransposed, const char* where);
void emulator_multiply(float** d, const unsigned* a, const unsigned* b, const float* c, bool isHalf, const char* where);
}

#define __cvta_generic_to_shared(address) emulator_toShared(address, HERE)

namespace ptx {
UNCHECKED void cvt_f32_f16(const char*, float& y, unsigned short x) { y = emulator_fromHalf(x); }
UNCHECKED void cvt_rn_f16_f32(const char*, unsigned short& y, float x) { y = emulator_toHalf(x); }
UNCHECKED void cvt_rn_bf16_f32(const char*, unsigned short& y, float x) { y = emulator_toBfloat(x); }

UNCHECKED void cp_async_cg_shared_global(const char* where, unsigned to, const void* from, int size, int bytes) {
  emulator_copyAhead(to, from, size, bytes, where);
}
UNCHECKED void cp_async_ca_shared_global(const char* where, unsigned to, const void* from, int size, int bytes) {
  emulator_copyAhead(to, from, size, bytes, where);
}
UNCHECKED void cp_async_commit_group(const char*) { emulator_commit(); }
UNCHECKED void cp_async_wait_group(const char*, int later) { emulator_await(later); }

UNCHECKED void griddepcontrol_launch_dependents(const char*) {}
UNCHECKED void griddepcontrol_wait(const char*) { emulator_awaitLaunch(); }

UNCHECKED void ldmatrix_sync_aligned_m8n8_x4_shared_b16(const char* where, unsigned& q, unsigned& r, unsigned& s,
                                                        unsigned& t, unsigned row) {
  unsigned* to[4] = {&q, &r, &s, &t};
  emulator_loadMatrices(to, row, false, where);
}
UNCHECKED void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(const char* where, unsigned& q, unsigned& r, unsigned& s,
                                                              unsigned& t, unsigned row) {
  unsigned* to[4] = {&q, &r, &s, &t};
  emulator_loadMatrices(to, row, true, where);
}

#define MMA(name, isHalf)                                                                                            \
  UNCHECKED void name(const char* where, float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1,        \
                      unsigned a2, unsigned a3, unsigned b0, unsigned b1, float c0, float c1, float c2, float c3) {  \
    float* d[4] = {&d0, &d1, &d2, &d3};                                                                              \
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                         \
    const float c[4] = {c0, c1, c2, c3};                                                                             \
    emulator_multiply(d, a, b, c, isHalf, where);                                                                    \
  }
MMA(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, true)
MMA(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, false)
#undef MMA
}  // namespace ptx
