// A stand-in for NVIDIA's libnccl.so.2: the functions that CuPy asks of it, between processes of one machine, on memory
// of the host. A call is over when it returns; streams are not looked at.
//
// Between each two processes lies a mailbox in shared memory, which one of them writes and the other reads. All calls
// are messages through these: a head, which says what the sender believes to take part in, then its bytes. Who reads
// another head than it has itself ends the call with an error that names both; so does who waits for a process that is
// no more, or for longer than STANDIN_NCCL_PATIENCE seconds.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

enum Result { SUCCESS = 0, SYSTEM = 2, ARGUMENT = 4, USAGE = 5, REMOTE = 6 };
enum Kind { ALLREDUCE, REDUCE, REDUCESCATTER, ALLGATHER, BROADCAST, SENDRECEIVE };
enum Type { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, TYPES };

const char* const KINDS[] = {"allReduce", "reduce", "reduceScatter", "allGather", "broadcast", "send and receive"};
const char* const NAMES[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                             "uint64", "float16", "float32", "float64", "bfloat16"};
const size_t SIZES[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
const size_t ROOM = 1 << 16;  // bytes of a mailbox
const int MOST = 16;          // processes
const int RESTS = 200;        // rounds without progress until a process sleeps between two of them

struct Head {
  int64_t kind, type, count, root;
  bool operator==(const Head& other) const { return memcmp(this, &other, sizeof *this) == 0; }
  std::string text() const {
    std::string whole = std::string(KINDS[kind]) + " of " + std::to_string(count) + " " + NAMES[type];
    return root < 0 ? whole : whole + " from " + std::to_string(root);
  }
};

struct Mailbox {
  std::atomic<uint64_t> written, read;  // bytes since the beginning
  char data[ROOM];
};

struct Segment {
  std::atomic<int> joined, aborted;
  std::atomic<int> pids[MOST];
  Mailbox boxes[MOST][MOST];  // from, to
};

struct Message {  // one way
  int peer;
  bool isSent;
  Head head;
  char* data;
  size_t size, done = 0, headDone = 0;
  Head found{};
};

thread_local std::string fault;
thread_local int depth = 0;  // of groups that are open

int failed(Result result, const std::string& why) {
  fault = why;
  return result;
}

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

double patience() {
  const char* given = getenv("STANDIN_NCCL_PATIENCE");
  return given ? atof(given) : 300;
}

}  // namespace

struct ncclComm {
  Segment* segment;
  int size, rank;
};

namespace {

typedef ncclComm Comm;

struct Call {
  Comm* comm;
  std::vector<Message> messages;
  std::function<void()> finish;
};

thread_local std::vector<Call> waiting;  // of the group that is open

Mailbox& boxOf(Comm* comm, const Message& m) {
  return m.isSent ? comm->segment->boxes[comm->rank][m.peer] : comm->segment->boxes[m.peer][comm->rank];
}

size_t moved(Mailbox& box, bool isSent, char* data, size_t size) {  // bytes through a mailbox, as many as go now
  uint64_t written = box.written, read = box.read;
  size_t free = isSent ? ROOM - (written - read) : written - read, at = (isSent ? written : read) % ROOM;
  size_t count = std::min({size, free, ROOM - at});
  if (isSent) {
    memcpy(box.data + at, data, count);
    box.written = written + count;
  } else {
    memcpy(data, box.data + at, count);
    box.read = read + count;
  }
  return count;
}

int advance(Comm* comm, Message& m, bool& hasMoved) {
  Mailbox& box = boxOf(comm, m);
  if (m.headDone < sizeof(Head)) {
    char* head = reinterpret_cast<char*>(m.isSent ? &m.head : &m.found);
    size_t count = moved(box, m.isSent, head + m.headDone, sizeof(Head) - m.headDone);
    m.headDone += count;
    hasMoved |= count > 0;
    if (m.headDone < sizeof(Head)) return SUCCESS;
    if (!m.isSent && !(m.found == m.head)) {
      comm->segment->aborted = 1;
      return failed(USAGE, "rank " + std::to_string(comm->rank) + " has " + m.head.text() + ", rank " +
                               std::to_string(m.peer) + " has " + m.found.text());
    }
  }
  size_t count = m.done < m.size ? moved(box, m.isSent, m.data + m.done, m.size - m.done) : 0;
  m.done += count;
  hasMoved |= count > 0;
  return SUCCESS;
}

bool isOver(const Message& m) { return m.headDone == sizeof(Head) && m.done == m.size; }

bool isGone(int pid) { return pid && kill(pid, 0) && errno == ESRCH; }

int lost(Comm* comm, int peer, double since) {  // why there can be no progress any more, if that is so
  std::string who = "rank " + std::to_string(peer);
  if (comm->segment->aborted) return failed(REMOTE, "a process has aborted the communicator");
  if (isGone(comm->segment->pids[peer])) return failed(REMOTE, who + " is no more");
  if (now() - since > patience()) return failed(REMOTE, who + " has not come for too long");
  return SUCCESS;
}

int run(std::vector<Call>& calls) {  // messages of one direction between two processes keep their order
  double since = now();
  for (int rests = 0;;) {
    bool hasMoved = false, isDone = true;
    Comm* last = nullptr;
    int peer = 0;
    std::vector<std::pair<Comm*, int>> busy;
    for (Call& call : calls)
      for (Message& m : call.messages) {
        std::pair<Comm*, int> way(call.comm, 2 * m.peer + m.isSent);
        bool isBusy = false;
        for (auto& other : busy) isBusy |= other == way;
        if (isBusy || isOver(m)) continue;
        if (int result = advance(call.comm, m, hasMoved)) return result;
        if (isOver(m)) continue;
        busy.push_back(way);
        isDone = false;
        last = call.comm;
        peer = m.peer;
      }
    if (isDone) break;
    if (hasMoved) {
      since = now();
      rests = 0;
    } else if (++rests > RESTS) {
      if (int result = lost(last, peer, since)) return result;
      usleep(200);
    } else {
      sched_yield();
    }
  }
  for (Call& call : calls)
    if (call.finish) call.finish();
  return SUCCESS;
}

int put(Comm* comm, std::vector<Message> messages, std::function<void()> finish = nullptr) {
  if (comm->segment->aborted) return failed(REMOTE, "a process has aborted the communicator");
  Call call{comm, std::move(messages), std::move(finish)};
  if (depth) {
    waiting.push_back(std::move(call));
    return SUCCESS;
  }
  std::vector<Call> calls{std::move(call)};
  return run(calls);
}

// Sums ----------------------------------------------------------------------------------------------------------------

struct Half {  // a number of 16 bits, added in float32
  uint16_t bits;
  static float wide(uint16_t bits, bool isBrain) {
    float y;
    if (!isBrain) {
      _Float16 x;
      memcpy(&x, &bits, 2);
      return float(x);
    }
    uint32_t wide = uint32_t(bits) << 16;
    memcpy(&y, &wide, 4);
    return y;
  }
  static uint16_t narrow(float x, bool isBrain) {
    uint16_t found;
    if (!isBrain) {
      _Float16 y = _Float16(x);
      memcpy(&found, &y, 2);
      return found;
    }
    uint32_t wide;
    memcpy(&wide, &x, 4);
    return uint16_t((wide + 0x7FFF + (wide >> 16 & 1)) >> 16);  // to the nearest, ties to even
  }
};

template <class T>
void add(char* into, const char* from, size_t count) {
  for (size_t i = 0; i < count; i++) reinterpret_cast<T*>(into)[i] += reinterpret_cast<const T*>(from)[i];
}

void addHalves(char* into, const char* from, size_t count, bool isBrain) {
  uint16_t* x = reinterpret_cast<uint16_t*>(into);
  const uint16_t* y = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; i++)
    x[i] = Half::narrow(Half::wide(x[i], isBrain) + Half::wide(y[i], isBrain), isBrain);
}

void sum(int type, char* into, const char* from, size_t count) {
  if (type == FLOAT32) add<float>(into, from, count);
  if (type == FLOAT64) add<double>(into, from, count);
  if (type == INT32) add<int32_t>(into, from, count);
  if (type == INT64) add<int64_t>(into, from, count);
  if (type == FLOAT16 || type == BFLOAT16) addHalves(into, from, count, type == BFLOAT16);
}

bool isSummed(int type, int operation) {
  return operation == 0 && (type == INT32 || type == INT64 || (type >= FLOAT16 && type < TYPES));
}

// Collectives: what each process gives to, and takes from, each other one ------------------------------------------------

// Add `count` elements of all processes, of which each sends those that `to` names for a receiver.
int reduced(Comm* comm, Head head, const char* in, char* out, size_t count, std::function<size_t(int)> offset,
            bool isReceiver, std::function<bool(int)> receives) {
  size_t bytes = count * SIZES[head.type];
  auto room = std::make_shared<std::vector<char>>(isReceiver ? bytes * comm->size : 0);
  std::vector<Message> messages;
  for (int r = 0; r < comm->size; r++) {
    if (r == comm->rank) continue;
    messages.push_back({r, true, head, const_cast<char*>(in) + offset(r), receives(r) ? bytes : 0});
    messages.push_back({r, false, head, room->data() + r * bytes, isReceiver ? bytes : 0});
  }
  return put(comm, messages, [=] {
    if (!isReceiver) return;
    memcpy(room->data() + comm->rank * bytes, in + offset(comm->rank), bytes);
    for (int r = 1; r < comm->size; r++) sum(head.type, room->data(), room->data() + r * bytes, count);
    memcpy(out, room->data(), bytes);
  });
}

bool isKnown(Comm* comm, int type) { return comm && comm->segment && type >= 0 && type < TYPES; }

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};

const char* ncclGetErrorString(int result) {
  static thread_local std::string text;
  const char* kinds[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                         "invalid argument", "invalid usage", "remote process exited or there was a network error"};
  text = kinds[result < 7 ? result : 3];
  if (result && !fault.empty()) text += ": " + fault;
  return text.c_str();
}

int ncclGetVersion(int* version) {
  *version = 22707;
  return SUCCESS;
}

int ncclGetUniqueId(ncclUniqueId* id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/standin-nccl-%d-%ld", getpid(), long(1e6 * now()));
  int file = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(Segment))) return failed(SYSTEM, strerror(errno));
  close(file);
  return SUCCESS;
}

int ncclCommInitRankConfig(Comm** made, int size, ncclUniqueId id, int rank, void*) {
  if (size > MOST || rank < 0 || rank >= size) return failed(ARGUMENT, "no such rank");
  int file = shm_open(id.internal, O_RDWR, 0600);
  if (file < 0) return failed(SYSTEM, strerror(errno));
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return failed(SYSTEM, strerror(errno));
  Comm* comm = new Comm{static_cast<Segment*>(memory), size, rank};
  comm->segment->pids[rank] = getpid();
  comm->segment->joined++;
  for (double since = now(); comm->segment->joined < size; usleep(200))
    if (now() - since > patience()) return failed(REMOTE, "not all processes have come");
  if (rank == 0) shm_unlink(id.internal);
  *made = comm;
  return SUCCESS;
}

int ncclCommDestroy(Comm* comm) {
  munmap(comm->segment, sizeof(Segment));
  comm->segment = nullptr;
  return SUCCESS;
}

int ncclCommAbort(Comm* comm) {  // others may be in a call: the segment stays
  comm->segment->aborted = 1;
  return SUCCESS;
}

int ncclCommGetAsyncError(Comm* comm, int* result) {
  *result = SUCCESS;
  for (int r = 0; r < comm->size; r++)
    if (r != comm->rank && isGone(comm->segment->pids[r]))
      *result = failed(REMOTE, "rank " + std::to_string(r) + " is no more");
  return SUCCESS;
}

int ncclCommCount(Comm* comm, int* count) { return *count = comm->size, SUCCESS; }
int ncclCommUserRank(Comm* comm, int* rank) { return *rank = comm->rank, SUCCESS; }
int ncclCommCuDevice(Comm*, int* device) { return *device = 0, SUCCESS; }
int ncclCommInitAll(Comm**, int, const int*) { return failed(USAGE, "one process has one rank here"); }
int ncclCommSplit(Comm*, int, int, Comm**, void*) { return failed(USAGE, "communicators are not split here"); }

int ncclGroupStart() {
  depth++;
  return SUCCESS;
}

int ncclGroupEnd() {
  if (--depth) return SUCCESS;
  std::vector<Call> calls;
  calls.swap(waiting);
  return run(calls);
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation, Comm* comm, void*) {
  if (!isKnown(comm, type) || !isSummed(type, operation)) return failed(ARGUMENT, "no such sum");
  Head head{ALLREDUCE, type, int64_t(count), -1};
  return reduced(comm, head, static_cast<const char*>(in), static_cast<char*>(out), count, [](int) { return size_t(0); },
                 true, [](int) { return true; });
}

int ncclReduce(const void* in, void* out, size_t count, int type, int operation, int root, Comm* comm, void*) {
  if (!isKnown(comm, type) || !isSummed(type, operation)) return failed(ARGUMENT, "no such sum");
  Head head{REDUCE, type, int64_t(count), root};
  return reduced(comm, head, static_cast<const char*>(in), static_cast<char*>(out), count, [](int) { return size_t(0); },
                 comm->rank == root, [root](int r) { return r == root; });
}

int ncclReduceScatter(const void* in, void* out, size_t count, int type, int operation, Comm* comm, void*) {
  if (!isKnown(comm, type) || !isSummed(type, operation)) return failed(ARGUMENT, "no such sum");
  size_t bytes = count * SIZES[type];
  Head head{REDUCESCATTER, type, int64_t(count), -1};
  return reduced(comm, head, static_cast<const char*>(in), static_cast<char*>(out), count,
                 [bytes](int r) { return r * bytes; }, true, [](int) { return true; });
}

int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* comm, void*) {
  if (!isKnown(comm, type)) return failed(ARGUMENT, "no such type");
  size_t bytes = count * SIZES[type];
  Head head{ALLGATHER, type, int64_t(count), -1};
  std::vector<Message> messages;
  for (int r = 0; r < comm->size; r++) {
    if (r == comm->rank) continue;
    messages.push_back({r, true, head, static_cast<char*>(const_cast<void*>(in)), bytes});
    messages.push_back({r, false, head, static_cast<char*>(out) + r * bytes, bytes});
  }
  memmove(static_cast<char*>(out) + comm->rank * bytes, in, bytes);
  return put(comm, messages);
}

int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* comm, void*) {
  if (!isKnown(comm, type)) return failed(ARGUMENT, "no such type");
  size_t bytes = count * SIZES[type];
  bool isRoot = comm->rank == root;
  Head head{BROADCAST, type, int64_t(count), root};
  std::vector<Message> messages;
  for (int r = 0; r < comm->size; r++) {
    if (r == comm->rank) continue;
    messages.push_back({r, true, head, static_cast<char*>(const_cast<void*>(in)), isRoot ? bytes : 0});
    messages.push_back({r, false, head, static_cast<char*>(out), r == root ? bytes : 0});
  }
  if (isRoot) memmove(out, in, bytes);
  return put(comm, messages);
}

int ncclBcast(void* data, size_t count, int type, int root, Comm* comm, void* stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

int ncclSend(const void* data, size_t count, int type, int peer, Comm* comm, void*) {
  if (!isKnown(comm, type)) return failed(ARGUMENT, "no such type");
  Head head{SENDRECEIVE, type, int64_t(count), -1};
  return put(comm, {{peer, true, head, static_cast<char*>(const_cast<void*>(data)), count * SIZES[type]}});
}

int ncclRecv(void* data, size_t count, int type, int peer, Comm* comm, void*) {
  if (!isKnown(comm, type)) return failed(ARGUMENT, "no such type");
  Head head{SENDRECEIVE, type, int64_t(count), -1};
  return put(comm, {{peer, false, head, static_cast<char*>(data), count * SIZES[type]}});
}
}
