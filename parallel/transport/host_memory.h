// Memory that the processes of one host share, divided into named regions. It belongs to no file
// system (memfd_create): it needs no directory, has no limit of its own and ends with its processes
// however they end. Pages exist once a process writes to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trident {

class HostMemory {
 public:
  // The information by which another process finds the memory.
  struct Ticket {
    int process = 0, descriptor = -1;
    std::uint64_t device = 0, file = 0;  // from fstat; they differ in another PID namespace
  };

  // Both return null where the system refuses.
  static std::unique_ptr<HostMemory> make();
  static std::unique_ptr<HostMemory> open(const Ticket& ticket);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Ticket ticket() const;

  // A region, as this process has mapped it.
  class Region {
   public:
    Region(std::shared_ptr<HostMemory> memory, std::uint64_t offset, std::byte* data,
           std::size_t bytes)
        : memory_(std::move(memory)), offset_(offset), data_(data), bytes_(bytes) {}
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    std::byte* data() const { return data_; }
    // Gives the pages back to the system. No process may use the region any more.
    void discard() noexcept;

   private:
    std::shared_ptr<HostMemory> memory_;
    std::uint64_t offset_;
    std::byte* data_;
    std::size_t bytes_;
  };
  // The region of that name, initially zero. The first process that requests it allocates it; all
  // request the same number of bytes. Null where this process can't map it. Sets `full`, on all
  // processes alike, where the memory is used up.
  static std::unique_ptr<Region> region(const std::shared_ptr<HostMemory>& memory,
                                        std::uint64_t name, std::size_t bytes, bool& full);

 private:
  struct Table;
  HostMemory(int descriptor, Table* table) : descriptor_(descriptor), table_(table) {}
  static std::unique_ptr<HostMemory> map(int descriptor);

  int descriptor_;
  Table* table_;
};

}  // namespace trident
