// The runtime of the emulator: one thread of a block after the other, each on a stack of its own, up to where it waits.
// Blocks run one after the other; those of a cooperative launch take turns, each up to where it pauses.
//
// Every access to memory is checked (g++ -fsanitize=kernel-address calls __asan_load4_noabort and its like): it must
// be in an array that the kernel was given, in shared memory, or on the thread's own stack; be aligned to its size; and
// not race, between two barriers, with an access to the same bytes by another thread, one of them writing. Of another
// block a thread may read what was written before a barrier and a fence, after which that block drew a ticket (atomicInc),
// once its own block has drawn from the same one later, and then passed a fence.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>

namespace {

struct Triple {
  unsigned x, y, z;
};

struct Here {  // as in emulator.h
  Triple thread, block, blocks, threads;
  char* dynamic;
};

enum Wait { RUNS, BLOCK, LANES, PAUSE, DONE };
enum How { PLAIN, ANY, EVERY, BALLOT, MATCH, MATRICES, PRODUCT };

struct Thread {
  Triple index;
  int number;    // in its block
  Wait wait;
  const char* where;  // it waits: file:line
  int how, lane;
  unsigned mask;
  uint64_t value, result;
  void* stack;  // where it resumes
  int stackIndex;  // the index of its stack; -1: none
  uint32_t fenced;   // what its last fence orders: accesses of its block before that time; 0: no fence
  const void* drawn;  // the ticket that it drew from since
  int groups;  // of copies that it has committed
  bool hasWaited;  // for the launch before
};

struct Release {  // a block whose accesses before some time are seen by those that draw after it
  uint32_t block, time;
};

struct Mark {  // the last thread at some bytes, counted from 1 through the grid, and when
  uint32_t writer, writeTime;
  uint32_t reader, readTime;
  uint32_t spread;  // how widely unordered readers are spread
};
const uint32_t ONITSWAY = ~0u;  // when something is written that a copy will bring
enum Spread { ALONE, WARP, TEAM, GRID };

struct Region {
  char* start;
  uint64_t bytes;
  const uint8_t* isOurs;  // for each unit; null: all of them
  uint64_t unit;
  int number;
  bool isShared;
  std::vector<Mark> marks;
};

const uint64_t STACK = 256 << 10;

std::vector<Region> regions;
std::vector<Thread> threads;
std::vector<uint32_t> warpTimes;  // when the lanes of a warp last synchronized
std::vector<int> freeStacks;  // free stacks
char *stacks = nullptr, *stacksEnd = nullptr, *ownStart = nullptr, *ownEnd = nullptr;
int stackCount = 0;
uint32_t now;  // counts barriers
uint32_t blockStart, blockTime;  // when the block began, and when all its threads last synchronized
uint32_t first;  // the index of the block's first thread
std::unordered_map<const void*, std::vector<Release>> tickets;  // by the address of each those that drew from it
std::unordered_map<uint32_t, uint32_t> seen;  // by its index what the block sees of another one: all before that time
Thread* here;
void* scheduler;
bool isCooperative, isDependent;
void (*kernel)(void**);
void** arguments;
char message[400];
size_t lastRegion;

// In ptx.cpp
void arrive(int thread, int group);
void distribute(Thread* warp);
void multiply(Thread* warp);
void forgetCopies(int count);

}  // namespace

extern "C" {
Here emulator_here;
void emulator_switch(void** from, void* to);
}

#if defined(__x86_64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
static const int SAVED = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl emulator_switch
.type emulator_switch, %function
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#else
#error "the emulator knows x86-64 and aarch64"
#endif

namespace {

[[noreturn]] void leave(Wait wait) {
  here->wait = wait;
  void* nowhere;
  emulator_switch(&nowhere, scheduler);
  __builtin_unreachable();
}

template <class... A>
[[noreturn]] void fail(const char* format, A... values) {
  int length = snprintf(message, sizeof(message), "block (%u, %u, %u), thread (%u, %u, %u): ", emulator_here.block.x,
                        emulator_here.block.y, emulator_here.block.z, here->index.x, here->index.y, here->index.z);
  snprintf(message + length, sizeof(message) - length, format, values...);
  leave(DONE);
}

void begin() {
  kernel(arguments);
  arrive(here->number, here->groups + 1);
  leave(DONE);
}

void* freshStack(int stackIndex) {
  void** top = reinterpret_cast<void**>(stacks + STACK * (stackIndex + 1));
#if defined(__x86_64__)
  *--top = nullptr;  // so that the stack is aligned as after a call
  *--top = reinterpret_cast<void*>(begin);
  top -= SAVED;
#else
  top -= 20;
  top[11] = reinterpret_cast<void*>(begin);
#endif
  return top;
}

void run(Thread& t) {
  if (t.stackIndex < 0) {
    t.stackIndex = freeStacks.back();
    freeStacks.pop_back();
    t.stack = freshStack(t.stackIndex);
  }
  here = &t;
  emulator_here.thread = t.index;
  void* target = t.stack;
  emulator_switch(&scheduler, target);
  if (t.wait == DONE) freeStacks.push_back(t.stackIndex);
}

void suspend(Wait wait) {
  here->wait = wait;
  Thread* self = here;
  emulator_switch(&self->stack, scheduler);
}

// Run what the lanes of a mask wait for once all have arrived; returns whether some resume
bool meet(Thread* warp, int lanes, uint32_t& time) {
  bool moved = false;
  for (int i = 0; i < lanes; i++) {
    if (warp[i].wait != LANES) continue;
    const Thread one = warp[i];
    bool all = true;
    for (int j = 0; j < 32; j++) {
      if (!(one.mask >> j & 1)) continue;
      if (j >= lanes || warp[j].wait == DONE) {
        here = &warp[i];
        snprintf(message, sizeof(message),
                 "block (%u, %u, %u), thread (%u, %u, %u): %s: its mask has lane %d, which %s", emulator_here.block.x,
                 emulator_here.block.y, emulator_here.block.z, here->index.x, here->index.y, here->index.z, one.where, j,
                 j >= lanes ? "does not exist" : "has ended");
        return false;
      }
      if (warp[j].wait != LANES || warp[j].mask != one.mask || strcmp(warp[j].where, one.where)) all = false;
    }
    if (!all) continue;
    if (one.how == MATRICES) distribute(warp);
    if (one.how == PRODUCT) multiply(warp);
    uint64_t votes = 0;
    for (int j = 0; j < 32; j++)
      if (one.mask >> j & 1) votes |= uint64_t(warp[j].value != 0) << j;
    for (int j = 0; j < 32; j++) {
      if (!(one.mask >> j & 1)) continue;
      Thread& t = warp[j];
      if (t.how == PLAIN) t.result = warp[t.lane & 31].value;
      if (t.how == ANY) t.result = votes != 0;
      if (t.how == EVERY) t.result = votes == one.mask;
      if (t.how == BALLOT) t.result = votes;
      if (t.how == MATCH) {
        t.result = 0;
        for (int k = 0; k < 32; k++)
          if (one.mask >> k & 1 && warp[k].value == t.value) t.result |= uint64_t(1) << k;
      }
    }
    for (int j = 0; j < 32; j++)
      if (one.mask >> j & 1) warp[j].wait = RUNS;
    time = ++now;
    moved = true;
  }
  return moved;
}

// Run the block until it has ended, or pauses; returns false for a fault
bool runBlock(int count) {
  int left = 0;
  for (Thread& t : threads) {
    left += t.wait != DONE;
    if (t.wait == PAUSE) t.wait = RUNS;
  }
  while (left) {
    for (int start = 0; start < count; start += 32) {
      const int lanes = count - start < 32 ? count - start : 32;
      do {
        for (int i = start; i < start + lanes; i++) {
          if (threads[i].wait != RUNS) continue;
          run(threads[i]);
          if (message[0]) return false;
          left -= threads[i].wait == DONE;
        }
      } while (meet(&threads[start], lanes, warpTimes[start / 32]));
      if (message[0]) return false;
    }
    for (const Thread& t : threads)
      if (t.wait == PAUSE) return true;
    const Thread* waiting = nullptr;
    for (int i = 0; i < count; i++)
      if (threads[i].wait != DONE) waiting = &threads[i];
    for (int i = 0; i < count && waiting; i++) {
      const Thread& t = threads[i];
      if (t.wait == BLOCK && waiting->wait == BLOCK && !strcmp(t.where, waiting->where)) continue;
      snprintf(message, sizeof(message),
               "block (%u, %u, %u): thread (%u, %u, %u) waits at %s, but thread (%u, %u, %u) %s%s",
               emulator_here.block.x, emulator_here.block.y, emulator_here.block.z, waiting->index.x, waiting->index.y,
               waiting->index.z, waiting->where, t.index.x, t.index.y, t.index.z,
               t.wait == DONE ? "has ended" : "waits at ", t.wait == DONE ? "" : t.where);
      return false;
    }
    for (int i = 0; i < count; i++)
      if (threads[i].wait == BLOCK) threads[i].wait = RUNS;
    blockTime = ++now;
  }
  return true;
}

uint32_t blockOf(uint32_t thread) { return (thread - 1) / (emulator_here.threads.x * emulator_here.threads.y * emulator_here.threads.z); }

bool isHere(uint32_t thread) { return thread - first < threads.size(); }  // in this block

// Whether a barrier is between an access of another thread and now
bool isOrdered(uint32_t other, uint32_t time) {
  if (!isHere(other)) {
    if (seen.empty()) return false;
    const auto found = seen.find(blockOf(other));
    return found != seen.end() && time < found->second;
  }
  if (time < blockTime) return true;
  return (other - first) / 32 == uint32_t(here->number) / 32 && time < warpTimes[here->number / 32];
}

[[noreturn]] void race(const Region& r, uint64_t unit, const char* what, uint32_t other) {
  const uint32_t count = emulator_here.threads.x * emulator_here.threads.y * emulator_here.threads.z;
  char title[40] = "shared memory";
  if (!r.isShared) snprintf(title, sizeof(title), "argument %d", r.number);
  fail("%s %llu of %s, and no barrier is between that and thread %u of %s", what, (unsigned long long)unit, title,
       (other - 1) % count, blockOf(other) == blockOf(first) ? "this block" : "another block");
}

void touch(Region& r, uint64_t unit, bool writes) {
  Mark& m = r.marks[unit];
  const uint32_t me = first + here->number;
  if (r.isShared && m.writeTime < blockStart) m.writer = 0;
  if (r.isShared && m.readTime < blockStart) m.reader = 0;
  if (m.writer && m.writeTime == ONITSWAY)
    fail("%s at %llu of shared memory, where a copy is on its way that thread %u has not awaited",
         writes ? "writes" : "reads", (unsigned long long)unit, m.writer - first);
  if (m.writer && m.writer != me && !isOrdered(m.writer, m.writeTime))
    race(r, unit, writes ? "writes what was written at" : "reads what was written at", m.writer);
  if (writes) {
    const bool others = m.reader && (m.reader != me || m.spread != ALONE);
    const bool isTeam = m.spread == TEAM && isHere(m.reader);
    if (others && (m.spread == GRID || (isTeam ? m.readTime >= blockTime : !isOrdered(m.reader, m.readTime))))
      race(r, unit, "writes what was read at", m.reader);
    m.writer = me, m.writeTime = now, m.reader = 0;
    return;
  }
  uint32_t spread = ALONE;
  if (m.reader && m.reader != me && !isOrdered(m.reader, m.readTime)) {
    spread = blockOf(m.reader) != blockOf(me) ? GRID : (m.reader - first) / 32 != (me - first) / 32 ? TEAM : WARP;
    if (m.spread > spread) spread = m.spread;
  } else if (m.reader == me && m.readTime >= blockTime) {
    spread = m.spread;
  }
  if (m.reader && m.spread == GRID && !r.isShared) spread = GRID;
  m.reader = me, m.readTime = now, m.spread = spread;
}

void align(const void* address, int bytes) {
  if (reinterpret_cast<uint64_t>(address) % bytes)
    fail("moves %d bytes at an address that is no multiple of %d", bytes, bytes);
}

void check(const void* address, uint64_t bytes, bool writes, bool isAtomic = false) {
  char* const p = static_cast<char*>(const_cast<void*>(address));
  if (p >= stacks && p < stacksEnd) return;
  if (p - reinterpret_cast<char*>(&emulator_here) < int64_t(sizeof(Here)) && p >= reinterpret_cast<char*>(&emulator_here))
    return;
  const char* what = writes ? "writes" : "reads";
  if ((bytes & (bytes - 1)) == 0 && bytes <= 16) align(p, int(bytes));
  for (size_t i = 0; i < regions.size(); i++) {
    Region& r = regions[lastRegion];
    if (p >= r.start && p + bytes <= r.start + r.bytes) {
      if (isDependent && !here->hasWaited && !r.isShared)
        fail("%s argument %d's memory before it has waited for the launch before", what, r.number);
      const uint64_t from = (p - r.start) / r.unit, to = (p - r.start + bytes - 1) / r.unit;
      for (uint64_t unit = from; unit <= to; unit++) {
        if (r.isOurs && !r.isOurs[unit])
          fail("%s number %llu of argument %d's memory, which is between its elements", what,
               (unsigned long long)unit, r.number);
        if (!isAtomic) touch(r, unit, writes);
      }
      return;
    }
    lastRegion = lastRegion + 1 < regions.size() ? lastRegion + 1 : 0;
  }
  if (!writes && p >= ownStart && p + bytes <= ownEnd) return;
  const Region* nearest = nullptr;
  int64_t distance = 1 << 20, off = 0;
  for (const Region& r : regions) {
    const int64_t before = r.start - p, after = p + bytes - (r.start + r.bytes);
    const int64_t d = before > 0 ? before : after;
    if (d < distance) distance = d, nearest = &r, off = p - r.start;
  }
  if (!nearest) fail("%s %llu bytes at %p, which is no memory of its own", what, (unsigned long long)bytes, p);
  char name[40] = "shared memory";
  if (!nearest->isShared) snprintf(name, sizeof(name), "argument %d", nearest->number);
  fail("%s %llu bytes at byte %lld of %s, which has %llu", what, (unsigned long long)bytes, (long long)off, name,
       (unsigned long long)nearest->bytes);
}

}  // namespace

extern "C" {

void emulator_barrier(const char* where) {
  here->where = where;
  suspend(BLOCK);
}

int emulator_lane() { return here->number & 31; }

uint64_t emulator_exchange(int how, unsigned mask, uint64_t value, int lane, const char* where) {
  Thread& t = *here;
  if (!(mask >> (t.number & 31) & 1)) fail("%s: a lane waits by a mask, %08x, that it is not in", where, mask);
  if (how == PLAIN && !(mask >> (lane & 31) & 1))
    fail("%s: a shuffle reads lane %d, which is not in its mask, %08x", where, lane & 31, mask);
  t.how = how, t.mask = mask, t.value = value, t.lane = lane, t.where = where;
  suspend(LANES);
  return t.result;
}

void emulator_align(const void* address, int bytes) { align(address, bytes); }

void emulator_fence() {
  here->fenced = blockTime;
  if (!here->drawn) return;
  for (const Release& each : tickets[here->drawn]) seen[each.block] = each.time;
  here->drawn = nullptr;
}

void emulator_pause() {
  if (!isCooperative) fail("waits for another block, which may not have begun: the launch is not cooperative");
  suspend(PAUSE);
}

void emulator_awaitLaunch() { here->hasWaited = true; }

void emulator_ticket(const void* address) {
  here->drawn = address;
  if (here->fenced) tickets[address].push_back({blockOf(first), here->fenced});
}

void emulator_check(const void* address, unsigned long bytes, int) { check(address, bytes, true, true); }

#define ACCESS(bytes)                                                                 \
  void __asan_load##bytes##_noabort(void* address) { check(address, bytes, false); }     \
  void __asan_store##bytes##_noabort(void* address) { check(address, bytes, true); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
void __asan_loadN_noabort(void* address, unsigned long bytes) { check(address, bytes, false); }
void __asan_storeN_noabort(void* address, unsigned long bytes) { check(address, bytes, true); }
void __asan_handle_no_return() {}

struct Location {
  const char* file;
  uint32_t line, column;
};
void __ubsan_handle_out_of_bounds(Location* at, uint64_t index) {
  fail("%s:%u: index %lld is outside its array", at->file, at->line, (long long)index);
}
void __ubsan_handle_divrem_overflow(Location* at, uint64_t, uint64_t) { fail("%s:%u: division by zero", at->file, at->line); }

float emulator_fromHalf(unsigned short bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
  uint32_t word;
  if (exponent == 31) {
    word = sign | 0x7f800000 | fraction << 13;
  } else if (exponent) {
    word = sign | (exponent + 112) << 23 | fraction << 13;
  } else {
    const float small = std::ldexp(float(fraction), -24);
    memcpy(&word, &small, 4);
    word |= sign;
  }
  float x;
  memcpy(&x, &word, 4);
  return x;
}

unsigned short emulator_toHalf(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  const uint16_t sign = word >> 16 & 0x8000;
  word &= 0x7fffffff;
  if (word > 0x7f800000) return sign | 0x7fff;
  if (word >= 0x477ff000) return sign | 0x7c00;  // rounds to infinity
  if (word < 0x38800000) {                       // below the least normal number: as a multiple of 2^-24, to even
    float y;
    memcpy(&y, &word, 4);
    return sign | uint16_t(std::nearbyint(std::ldexp(y, 24)));
  }
  word += 0xfff + (word >> 13 & 1);
  return sign | uint16_t((word - 0x38000000) >> 13);
}

unsigned short emulator_toBfloat(float x) {
  uint32_t word;
  memcpy(&word, &x, 4);
  if ((word & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return (word + 0x7fff + (word >> 16 & 1)) >> 16;
}

double emulator_erfcx(double x) {
  if (x < 25) return double(expl((long double)x * x) * erfcl(x));
  return (1 - (0.5 - 0.75 / (x * x)) / (x * x)) / (x * std::sqrt(M_PI));
}

double emulator_erfinv(double p) {
  if (!(p > -1 && p < 1)) return p == 1 ? INFINITY : p == -1 ? -INFINITY : NAN;
  long double low = -6, high = 6;
  for (int i = 0; i < 100; i++) (erfl((low + high) / 2) < p ? low : high) = (low + high) / 2;
  return double(low);
}

double emulator_normcdfinv(double p) {
  if (!(p > 0 && p < 1)) return p == 1 ? INFINITY : p == 0 ? -INFINITY : NAN;
  long double low = -40, high = 40;
  for (int i = 0; i < 100; i++) (erfcl(-(low + high) / 2 / sqrtl(2)) / 2 < p ? low : high) = (low + high) / 2;
  return double(low);
}
}  // extern "C"

namespace {

// The state of a block before its first thread runs
void beginBlock(int number, int count) {
  const Triple &grid = emulator_here.blocks, &block = emulator_here.threads;
  const unsigned n = number;
  emulator_here.block = {n % grid.x, n / grid.x % grid.y, n / (grid.x * grid.y)};
  first = 1 + n * count;
  blockStart = blockTime = ++now;
  seen.clear();
  warpTimes.assign((count + 31) / 32, 0);
  for (Region& r : regions)
    if (r.isShared) memset(r.start, 0xff, r.bytes);
  threads.resize(count);
  for (unsigned i = 0; i < threads.size(); i++) {
    Thread& t = threads[i];
    t.index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    t.number = i, t.wait = RUNS, t.stackIndex = -1, t.fenced = 0, t.drawn = nullptr, t.groups = 0;
    t.hasWaited = false;
  }
}

bool runInOrder(int blocks, int count) {
  for (int i = 0; i < blocks; i++) {
    beginBlock(i, count);
    if (!runBlock(count)) return false;
  }
  return true;
}

// A block that pauses, while others run
struct Paused {
  Triple index;
  std::vector<Thread> threads;
  std::vector<uint32_t> warpTimes;
  std::unordered_map<uint32_t, uint32_t> seen;
  uint32_t first, start, time;
  std::vector<std::vector<char>> memory;  // of each shared region its bytes, and who was there
  std::vector<std::vector<Mark>> marks;
  bool isDone;
};

void pauseBlock(Paused& p) {
  p.index = emulator_here.block, p.first = first, p.start = blockStart, p.time = blockTime;
  p.threads.swap(threads), p.warpTimes.swap(warpTimes), p.seen.swap(seen);
  for (Region& r : regions) {
    if (!r.isShared) continue;
    p.memory.emplace_back(r.start, r.start + r.bytes);
    p.marks.push_back(r.marks);
  }
}

void resumeBlock(Paused& p) {
  emulator_here.block = p.index, first = p.first, blockStart = p.start, blockTime = p.time;
  p.threads.swap(threads), p.warpTimes.swap(warpTimes), p.seen.swap(seen);
  size_t i = 0;
  for (Region& r : regions) {
    if (!r.isShared) continue;
    memcpy(r.start, p.memory[i].data(), r.bytes);
    r.marks.swap(p.marks[i++]);
  }
  p.memory.clear(), p.marks.clear();
}

bool runTogether(int blocks, int count) {
  std::vector<Paused> paused(blocks);
  bool isFirst = true;
  for (int left = blocks; left; isFirst = false) {
    const uint32_t before = now;
    for (int i = 0; i < blocks; i++) {
      Paused& p = paused[i];
      if (p.isDone) continue;
      isFirst ? beginBlock(i, count) : resumeBlock(p);
      if (!runBlock(count)) return false;
      p.isDone = true;
      for (const Thread& t : threads) p.isDone = p.isDone && t.wait == DONE;
      left -= p.isDone;
      pauseBlock(p);
    }
    if (left && now == before) {
      snprintf(message, sizeof(message), "%d of %d blocks wait for others, and none goes on", left, blocks);
      return false;
    }
  }
  return true;
}

}  // namespace

extern "C" {

// An array that the next kernel may use; `isOurs` says it for each unit of bytes
void emulator_region(char* start, uint64_t bytes, uint64_t unit, const uint8_t* isOurs, int number) {
  regions.push_back({start, bytes, isOurs, unit, number, false, std::vector<Mark>((bytes + unit - 1) / unit)});
}

// Run a kernel on the arrays registered before; returns its fault, or null. `addresses` are those of its library;
// a `dependent` one may begin while what is before it still runs.
const char* emulator_launch(void (*code)(void**), void** values, char** addresses, const unsigned* grid,
                            const unsigned* block, uint64_t dynamic, int cooperative, int dependent) {
  kernel = code, arguments = values, isCooperative = cooperative, isDependent = dependent;
  emulator_here.blocks = {grid[0], grid[1], grid[2]};
  emulator_here.threads = {block[0], block[1], block[2]};
  const int count = int(block[0] * block[1] * block[2]), blocks = int(grid[0] * grid[1] * grid[2]);
  const int needed = isCooperative ? count * blocks : count;
  if (stackCount < needed) {
    if (stacks) munmap(stacks, STACK * stackCount);
    stacks = static_cast<char*>(mmap(nullptr, STACK * needed, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    stackCount = needed;
    stacksEnd = stacks + STACK * needed;
  }
  freeStacks.clear();
  for (int i = stackCount; i--;) freeStacks.push_back(i);
  ownStart = addresses[4], ownEnd = addresses[5];
  std::vector<char> memory(dynamic + 64);
  emulator_here.dynamic = memory.data() + (64 - reinterpret_cast<uint64_t>(memory.data()) % 64);
  for (char** of = addresses; of < addresses + 4; of += 2) {  // of the text, and of what all texts use
    const uint64_t own = of[1] - of[0];
    if (own) regions.push_back({of[0], own, nullptr, 1, 0, true, std::vector<Mark>(own)});
  }
  if (dynamic) regions.push_back({emulator_here.dynamic, dynamic, nullptr, 1, 0, true, std::vector<Mark>(dynamic)});
  message[0] = 0;
  forgetCopies(count);
  lastRegion = 0;
  now = 0;
  tickets.clear();
  const bool good = isCooperative ? runTogether(blocks, count) : runInOrder(blocks, count);
  regions.clear();
  return good ? nullptr : message;
}
}
