// A barrier of all blocks of a cooperative launch, after lastblock.h.
//
// Each block draws `times` times from one ticket, which is 0 before the launch and after it: once for each barrier, and
// once more as it ends, for until then a slower block may wait for a number.

#ifdef EMULATED
void pause() __asm__("emulator_pause");  // in emulator.cpp
__device__ static inline unsigned drawn(unsigned* ticket) {
  drawFrom(ticket);
  return atomicAdd(ticket, 0u);
}
#else
__device__ static inline unsigned drawn(unsigned* ticket) { return *(volatile unsigned*)ticket; }
__device__ static inline void pause() { __nanosleep(20); }
#endif

// The barrier with this index, from 0: what any block stored before it, each sees after it, but through no pointer that
// is __restrict__
__device__ static inline void gridBarrier(unsigned* ticket, int index, int times) {
  __syncthreads();
  if (threadIdx.x == 0) {
    FENCE();
    draw(ticket, gridDim.x * times);
    while (drawn(ticket) < gridDim.x * (index + 1)) pause();
    FENCE();
  }
  __syncthreads();
}

__device__ static inline void lastDraw(unsigned* ticket, int times) {
  if (threadIdx.x == 0) draw(ticket, gridDim.x * times);
}
