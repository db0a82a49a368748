#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "core/device.h"

namespace trident {
namespace {

class ThreadStream final : public Stream {
 public:
  explicit ThreadStream(std::ptrdiff_t offset)
      : Stream(false), access_(offset), thread_([this] { run(); }) {}

  ~ThreadStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void push(Work work) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      {
        Work work = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        const bool failed = error_ != nullptr;
        lock.unlock();
        if (!failed) {  // after an error the remaining work would compute on garbage
          try {
            work(access_);
          } catch (...) {
            lock.lock();
            error_ = std::current_exception();
            lock.unlock();
          }
        }
        work = nullptr;  // destroys its captures before the stream looks idle
        lock.lock();
      }
      busy_ = false;
      if (queue_.empty()) idle_.notify_all();
    }
  }

  Access access_;
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Work> queue_;
  bool busy_ = false;
  bool stop_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

class GuardedDevice final : public Device {
 public:
  explicit GuardedDevice(std::size_t bytes) : bytes_(bytes) {
    const int fd = memfd_create("trident-guarded", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
      throw Error("guarded device: cannot reserve " + std::to_string(bytes) + " bytes");
    }
    guard_ = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    alias_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    close(fd);
    if (guard_ == MAP_FAILED || alias_ == MAP_FAILED) throw Error("guarded device: mmap failed");
    free_[0] = bytes;
  }
  ~GuardedDevice() override {
    munmap(guard_, bytes_);
    munmap(alias_, bytes_);
  }

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "guarded"; }

  void* allocate(std::size_t bytes) override {
    const std::size_t size = rounded(bytes);
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {  // first fit
      if (it->second < size) continue;
      const std::size_t begin = it->first, rest = it->second - size;
      free_.erase(it);
      if (rest > 0) free_[begin + size] = rest;
      std::memset(static_cast<std::byte*>(alias_) + begin, 0xff, size);
      return static_cast<std::byte*>(guard_) + begin;
    }
    throw OutOfMemory("guarded device: no memory for an allocation of " + std::to_string(bytes) +
                      " bytes");
  }

  void deallocate(void* address, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    std::size_t begin = static_cast<std::size_t>(static_cast<std::byte*>(address) -
                                                 static_cast<std::byte*>(guard_));
    std::size_t size = rounded(bytes);
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == begin + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += size;
        return;
      }
    }
    free_[begin] = size;
  }

  std::unique_ptr<Stream> make_stream() override {
    return std::make_unique<ThreadStream>(static_cast<std::byte*>(alias_) -
                                          static_cast<std::byte*>(guard_));
  }

 private:
  static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

  std::size_t bytes_;
  void* guard_ = nullptr;
  void* alias_ = nullptr;
  std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // begin → size of each free range
};

}  // namespace

std::unique_ptr<Device> make_guarded_device(std::size_t bytes) {
  return std::make_unique<GuardedDevice>(bytes);
}

}  // namespace trident
