#include "parallel/transport/host_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

namespace trident {
namespace {

// The size in addresses; memory is allocated when it is written.
constexpr std::uint64_t host_memory_bytes = std::uint64_t{1} << 36;
constexpr std::size_t host_memory_slots = 1 << 16;
constexpr std::uint64_t page_bytes = 4096;

}  // namespace

// The table at the beginning of the memory, initially zero: the regions that are taken.
struct HostMemory::Table {
  struct Slot {
    std::atomic<std::uint64_t> name;   // 0: free
    std::atomic<std::uint64_t> begin;  // 0: not yet known
  };
  std::atomic<std::uint64_t> taken;  // bytes taken behind the table
  Slot slot[host_memory_slots];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::unique_ptr<HostMemory> HostMemory::map(int descriptor) {
  void* const table =
      ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (table == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  return std::unique_ptr<HostMemory>(new HostMemory(descriptor, static_cast<Table*>(table)));
}

std::unique_ptr<HostMemory> HostMemory::make() {
  // Where files have a size limit, growing beyond it raises a signal instead of an error.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < host_memory_bytes) return nullptr;
  const int descriptor = ::memfd_create("trident", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  if (::ftruncate(descriptor, static_cast<off_t>(host_memory_bytes)) != 0) {
    ::close(descriptor);
    return nullptr;
  }
  return map(descriptor);
}

std::unique_ptr<HostMemory> HostMemory::open(const Ticket& ticket) {
  const std::string path = fmt::format("/proc/{}/fd/{}", ticket.process, ticket.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return nullptr;
  struct stat found {};
  if (::fstat(descriptor, &found) != 0 || found.st_dev != ticket.device ||
      found.st_ino != ticket.file) {
    ::close(descriptor);
    return nullptr;
  }
  return map(descriptor);
}

HostMemory::~HostMemory() {
  ::munmap(table_, sizeof(Table));
  ::close(descriptor_);
}

HostMemory::Ticket HostMemory::ticket() const {
  struct stat found {};
  ::fstat(descriptor_, &found);
  return {::getpid(), descriptor_, found.st_dev, found.st_ino};
}

std::unique_ptr<HostMemory::Region> HostMemory::region(const std::shared_ptr<HostMemory>& memory,
                                                       std::uint64_t name, std::size_t bytes,
                                                       bool& full) {
  constexpr std::uint64_t none = ~std::uint64_t{0};
  const std::uint64_t rounded = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  Table& table = *memory->table_;
  name = name == 0 ? none : name;
  full = false;
  std::uint64_t begin = none;
  for (std::size_t i = 0; i < host_memory_slots; ++i) {
    Table::Slot& slot = table.slot[(name + i) % host_memory_slots];
    std::uint64_t seen = 0;
    if (slot.name.compare_exchange_strong(seen, name)) {
      const std::uint64_t first = (sizeof(Table) + page_bytes - 1) / page_bytes * page_bytes;
      begin = first + table.taken.fetch_add(rounded);
      if (begin + rounded > host_memory_bytes) begin = none;
      slot.begin.store(begin);
      break;
    }
    if (seen == name) {
      while ((begin = slot.begin.load()) == 0) std::this_thread::yield();
      break;
    }
  }
  full = begin == none;
  if (full) return nullptr;
  void* const data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED,
                            memory->descriptor_, static_cast<off_t>(begin));
  if (data == MAP_FAILED) return nullptr;
  return std::make_unique<Region>(memory, begin, static_cast<std::byte*>(data), rounded);
}

HostMemory::Region::~Region() {
  ::munmap(data_, bytes_);
}

void HostMemory::Region::discard() noexcept {
  ::fallocate(memory_->descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(offset_), static_cast<off_t>(bytes_));
}

}  // namespace trident
