// For kernels whose last block goes on with what all blocks have stored.

#ifdef EMULATED
void fence() __asm__("emulator_fence");  // in emulator.cpp
void drawFrom(const void* ticket) __asm__("emulator_ticket");
#define FENCE() fence()
__device__ static inline unsigned draw(unsigned* ticket, unsigned blocks) {
  drawFrom(ticket);
  const unsigned drawn = atomicAdd(ticket, 1u);
  if (drawn == blocks - 1) atomicExch(ticket, 0u);
  return drawn;
}
#else
#define FENCE() __threadfence()
__device__ static inline unsigned draw(unsigned* ticket, unsigned blocks) { return atomicInc(ticket, blocks - 1); }
#endif

// Whether this block is the last of a number of them to draw from a ticket: then it sees what the others stored before,
// but through no pointer that is __restrict__. The ticket is 0 before the launch and after it.
__device__ static inline bool isLastBlock(unsigned* ticket, unsigned blocks) {
  __shared__ unsigned drawn;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    FENCE();
    drawn = draw(ticket, blocks);
    FENCE();
  }
  __syncthreads();
  return drawn == blocks - 1;
}
