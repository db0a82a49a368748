#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "core/device.h"

namespace trident {
namespace {

class ImmediateStream final : public Stream {
 public:
  ImmediateStream() : Stream(true) {}
  void synchronize() override {}

 private:
  void push(Work work) override { work(Access{}); }
};

// A step touches gigabytes, and under a hypervisor a TLB miss walks two page tables. Large blocks
// are therefore mapped separately, on huge pages if the system has them.
constexpr std::size_t huge_page = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

// Null where the system refuses.
void* map_large(std::size_t bytes) {
  const std::size_t size = whole_pages(bytes);
  void* const start = mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(start) % huge_page;
  std::byte* const address = static_cast<std::byte*>(start) + before;
  if (before > 0) munmap(start, before);
  munmap(address + size, huge_page - before);
  // Whole huge pages only: a part of a huge page would take memory that was not requested.
  madvise(address, size / huge_page * huge_page, MADV_HUGEPAGE);
  return address;
}

// The usual size of a segment: the machine's memory, which costs nothing before it is touched; but
// little if addresses themselves are limited (`ulimit -v`) or count as memory (overcommit 2).
std::size_t segment_size() {
  rlimit limit{};
  int overcommit = 0;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY || overcommit == 2) {
    return 8 * huge_page;
  }
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

class CpuDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "cpu"; }
  void* allocate(std::size_t bytes) override {
    void* const address =
        bytes >= huge_page
            ? map_large(bytes)
            : std::aligned_alloc(64, std::max<std::size_t>(bytes + 63, 64) / 64 * 64);
    if (address == nullptr) {
      throw OutOfMemory("cpu device: no memory for an allocation of " + std::to_string(bytes) +
                        " bytes");
    }
    return address;
  }
  // Pages are taken from the system as they are touched.
  Segment allocate_segment(std::size_t at_least) override {
    static const std::size_t usual = segment_size();
    if (usual > at_least) {
      if (void* const address = map_large(usual)) return {address, whole_pages(usual)};
    }
    return {allocate(at_least), at_least};
  }
  void deallocate(void* address, std::size_t bytes) override {
    if (bytes >= huge_page) {
      munmap(address, whole_pages(bytes));
    } else {
      std::free(address);
    }
  }
  bool release(void* address, std::size_t bytes) override {
    return madvise(address, bytes, MADV_DONTNEED) == 0;
  }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
  return std::make_unique<CpuDevice>();
}

}  // namespace trident
