// Memory that the processes of one host share, cut into regions by name. It belongs to no file
// system (memfd_create), so it needs no directory, has no limit of its own and ends with its
// processes however they end. Pages exist once somebody writes to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trident {

class HostMemory {
 public:
  // How another process finds it.
  struct Ticket {
    int process = 0, descriptor = -1;
    std::uint64_t device = 0, file = 0;  // as fstat tells, which other namespaces' would not be
  };

  // Null where the system refuses.
  static std::unique_ptr<HostMemory> make();
  static std::unique_ptr<HostMemory> open(const Ticket& ticket);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  Ticket ticket() const;

  // A part of it, mapped by this process.
  class Region {
   public:
    Region(std::shared_ptr<HostMemory> memory, std::uint64_t offset, std::byte* data,
           std::size_t bytes)
        : memory_(std::move(memory)), offset_(offset), data_(data), bytes_(bytes) {}
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    std::byte* data() const { return data_; }
    // Gives the pages back; nobody may use the region any more.
    void discard() noexcept;

   private:
    std::shared_ptr<HostMemory> memory_;
    std::uint64_t offset_;
    std::byte* data_;
    std::size_t bytes_;
  };
  // The region of that name, zeros at first; the first who asks takes it. All ask for as many
  // bytes. Null where this process can't map it; `full`, which all see alike, where it is used up.
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
