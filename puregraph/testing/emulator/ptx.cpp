// Instructions of PTX in the emulator's runtime, after emulator.cpp: copies to shared memory that are on their way until
// the thread that began them awaits their group, and what the 32 lanes of a warp do together.
//
// Until then the bytes that a copy goes to are nan, and to read or write them is a fault: on a GPU they are old or new.

namespace {

struct CopyAhead {  // a copy that is on its way
  size_t region;
  uint64_t start;
  int size, group;
  char data[16];
};
struct Matrices {  // a lane's part of ldmatrix: the row that it has the address of, and what it gets of each matrix
  uint16_t row[8];
  unsigned to[4];
  bool isTransposed;
};
struct Product {  // a lane's part of mma: its fragments
  const unsigned *a, *b;
  const float* c;
  float d[4];
  bool isHalf;
};

std::vector<std::vector<CopyAhead>> copies;  // by thread
const int OFFSET = 24;  // bits of an address of shared memory, below the index of its region
const unsigned ALLLANES = 0xffffffffu;

Region& sharedAt(unsigned address, uint64_t& start, int bytes, const char* where) {
  Region& r = regions[address >> OFFSET];
  start = address & ((1u << OFFSET) - 1);
  if (start + bytes > r.bytes)
    fail("%s: moves %d bytes at byte %llu of shared memory, which has %llu", where, bytes, (unsigned long long)start,
         (unsigned long long)r.bytes);
  align(r.start + start, bytes);
  return r;
}

// Finish the copies of a thread in groups before one of them; those that nobody awaited as well, where it has ended
void arrive(int thread, int group) {
  std::vector<CopyAhead>& left = copies[thread];
  size_t kept = 0;
  for (const CopyAhead& each : left) {
    if (each.group >= group) {
      left[kept++] = each;
      continue;
    }
    Region& r = regions[each.region];
    memcpy(r.start + each.start, each.data, each.size);
    for (int i = 0; i < each.size; i++) r.marks[each.start + i].writeTime = now;
  }
  left.resize(kept);
}

void forgetCopies(int count) { copies.assign(count, {}); }

float widened(unsigned word, int i, bool isHalf) {
  const uint16_t bits = uint16_t(word >> 16 * i);
  if (isHalf) return emulator_fromHalf(bits);
  const uint32_t wide = uint32_t(bits) << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

template <class Part>
Part& partOf(Thread* warp, int lane) {
  return *reinterpret_cast<Part*>(warp[lane].value);
}

// Of matrix q a lane gets elements 2 (lane % 4) and the next of row lane / 4, or of that column
void distribute(Thread* warp) {
  for (int lane = 0; lane < 32; lane++) {
    Matrices& own = partOf<Matrices>(warp, lane);
    for (int q = 0; q < 4; q++) {
      unsigned two[2];
      for (int i = 0; i < 2; i++) {
        const int along = lane % 4 * 2 + i, across = lane / 4;
        const int row = own.isTransposed ? along : across, column = own.isTransposed ? across : along;
        two[i] = partOf<Matrices>(warp, 8 * q + row).row[column];
      }
      own.to[q] = two[0] | two[1] << 16;
    }
  }
}

// d = a b + c of fragments: a lane has rows lane / 4 and 8 more of a and d, column lane / 4 of b
void multiply(Thread* warp) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const Product& own = partOf<Product>(warp, lane);
    const int far = lane / 4, near = lane % 4 * 2;
    for (int i = 0; i < 2; i++) {
      for (int r = 0; r < 4; r++) a[far + r % 2 * 8][near + r / 2 * 8 + i] = widened(own.a[r], i, own.isHalf);
      for (int r = 0; r < 2; r++) b[near + r * 8 + i][far] = widened(own.b[r], i, own.isHalf);
    }
  }
  for (int lane = 0; lane < 32; lane++) {
    Product& own = partOf<Product>(warp, lane);
    for (int e = 0; e < 4; e++) {
      const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
      own.d[e] = own.c[e];
      for (int k = 0; k < 16; k++) own.d[e] += a[row][k] * b[k][column];
    }
  }
}

void together(int how, void* part, const char* where) {
  here->how = how, here->mask = ALLLANES, here->value = reinterpret_cast<uint64_t>(part), here->where = where;
  suspend(LANES);
}

}  // namespace

extern "C" {

unsigned emulator_toShared(const void* address, const char* where) {
  const char* p = static_cast<const char*>(address);
  for (size_t i = 0; i < regions.size(); i++)
    if (regions[i].isShared && p >= regions[i].start && p < regions[i].start + regions[i].bytes)
      return unsigned(i << OFFSET | size_t(p - regions[i].start));
  fail("%s: %p is no address of shared memory", where, address);
}

// Of `size` bytes `bytes` are copied, the rest is 0
void emulator_copyAhead(unsigned to, const void* from, int size, int bytes, const char* where) {
  CopyAhead own = {to >> OFFSET, 0, size, here->groups, {}};
  Region& r = sharedAt(to, own.start, size, where);
  align(from, size);
  if (bytes) check(from, bytes, false);
  memcpy(own.data, from, bytes);
  for (int i = 0; i < size; i++) {
    touch(r, own.start + i, true);
    r.marks[own.start + i].writeTime = ONITSWAY;
  }
  memset(r.start + own.start, 0xff, size);
  copies[here->number].push_back(own);
}

void emulator_commit() { here->groups++; }

void emulator_await(int later) { arrive(here->number, here->groups - later); }

void emulator_loadMatrices(unsigned** to, unsigned row, bool isTransposed, const char* where) {
  Matrices own = {{}, {}, isTransposed};
  uint64_t start;
  Region& r = sharedAt(row, start, 16, where);
  check(r.start + start, 16, false);
  memcpy(own.row, r.start + start, 16);
  together(MATRICES, &own, where);
  for (int q = 0; q < 4; q++) *to[q] = own.to[q];
}

void emulator_multiply(float** d, const unsigned* a, const unsigned* b, const float* c, bool isHalf, const char* where) {
  Product own = {a, b, c, {}, isHalf};
  together(PRODUCT, &own, where);
  for (int e = 0; e < 4; e++) *d[e] = own.d[e];
}
}
