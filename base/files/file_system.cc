#include "base/files/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/files/byte_buffer.h"
#include "base/files/bytes.h"
#include "base/files/file.h"

namespace trident {
namespace {

constexpr std::uint64_t kSmall = 64 << 10;       // a smaller separate write is not buffered
constexpr std::uint64_t kBuffer = 2 << 20;       // bytes of one write to the disk
constexpr std::uint64_t kLeastDirect = 4 << 20;  // the smallest file that bypasses the page cache

// Large files bypass the page cache, where they would only disturb training. Consecutive writes are
// collected, and their complete pages go to the disk in one write. The incomplete pages at both
// ends go through the cache; another object may write the rest of such a page, also through the
// cache.
class RealFile final : public OutputFile {
 public:
  RealFile(std::string path, FileDescriptor file, std::uint64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), past_cache_(bytes >= kLeastDirect) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(mutex_);
    if (offset != end_) flush();
    if (!past_cache_ || (begin_ == end_ && bytes.size() < kSmall)) {
      return write(file_, offset, bytes);
    }
    while (!bytes.empty()) {
      if (begin_ == end_) begin_ = end_ = offset;
      buffer_.resize(kBuffer);
      // Bytes have the same offset in their page of the buffer as in their page of the file.
      const std::uint64_t first = begin_ / page_ * page_;
      const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), first + kBuffer - end_);
      std::memcpy(buffer_.data() + (end_ - first), bytes.data(), count);
      end_ += count;
      offset += count;
      bytes = bytes.subspan(count);
      if (end_ == first + kBuffer) flush();
    }
  }

  void finish() override {
    const std::lock_guard lock(mutex_);
    flush();
    buffer_ = {};
    if (::fsync(file_.get()) != 0) throw_file_error(path_, "fsync", errno);
    direct_ = FileDescriptor();
    if (::close(file_.release()) != 0) throw_file_error(path_, "closing", errno);
  }

 private:
  void flush() {
    const std::uint64_t first = begin_ / page_ * page_;
    const std::uint64_t pages_begin = (begin_ + page_ - 1) / page_ * page_;
    const std::uint64_t pages_end = std::max(pages_begin, end_ / page_ * page_);
    const auto part = [&](std::uint64_t from, std::uint64_t to) {
      return std::span<const std::byte>(buffer_.data() + (from - first), to - from);
    };
    if (begin_ == end_) return;
    if (pages_begin < pages_end) {
      write(file_, begin_, part(begin_, pages_begin));
      write_pages(pages_begin, part(pages_begin, pages_end));
      write(file_, pages_end, part(pages_end, end_));
    } else {
      write(file_, begin_, part(begin_, end_));
    }
    begin_ = end_ = 0;
  }

  void write_pages(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (direct_.get() < 0) {  // not every file system supports O_DIRECT
      direct_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT));
    }
    while (direct_.get() >= 0 && !bytes.empty()) {
      const ssize_t n =
          ::pwrite(direct_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      // A disk of larger blocks, or a partial write: the page cache handles the rest.
      if (n <= 0 || n % static_cast<ssize_t>(page_) != 0) break;
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    if (bytes.empty()) return;
    past_cache_ = false;
    direct_ = FileDescriptor();
    write(file_, offset, bytes);
  }

  void write(const FileDescriptor& file, std::uint64_t offset, std::span<const std::byte> bytes) {
    constexpr std::size_t most = std::size_t{1} << 30;  // Linux limits a call to 2 GiB anyway
    while (!bytes.empty()) {
      const std::size_t count = std::min(most, bytes.size());
      const ssize_t n = ::pwrite(file.get(), bytes.data(), count, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        throw_file_error(path_, fmt::format("writing {} bytes at {}", bytes.size(), offset),
                         n < 0 ? errno : ENOSPC);
      }
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  std::string path_;
  FileDescriptor file_, direct_;  // direct_: opened when it is first needed
  bool past_cache_;
  // O_DIRECT and the page cache both work in pages. No page is written through both.
  const std::uint64_t page_ = std::max<std::uint64_t>(
      4096, static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE))));
  std::mutex mutex_;
  ByteBuffer buffer_;                  // begins at a page of the file
  std::uint64_t begin_ = 0, end_ = 0;  // the range of the file in the buffer
};

class RealFiles final : public FileSystem {
 public:
  void make_directory(const std::string& path) override {
    std::error_code ignored;  // a missing parent makes mkdir fail
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    if (::mkdir(path.c_str(), 0777) != 0) throw_file_error(path, "making this directory", errno);
  }

  std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) override {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0) throw_file_error(path, "creating it", errno);
    const auto size = static_cast<off_t>(bytes);
    // posix_fallocate would write zeros if the file system can't allocate.
    if (bytes > 0 && ::fallocate(file.get(), 0, 0, size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
      throw_file_error(path, fmt::format("allocating {} bytes", bytes), errno);
    }
    if (::ftruncate(file.get(), size) != 0) throw_file_error(path, "setting its size", errno);
    return std::make_unique<RealFile>(path, std::move(file), bytes);
  }

  std::unique_ptr<OutputFile> open(const std::string& path) override {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file.get() < 0) throw_file_error(path, "opening it", errno);
    struct stat found {};
    if (::fstat(file.get(), &found) != 0) throw_file_error(path, "fstat", errno);
    return std::make_unique<RealFile>(path, std::move(file),
                                      static_cast<std::uint64_t>(found.st_size));
  }

  void rename(const std::string& from, const std::string& to) override {
    std::error_code ignored;
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(to, ignored))) {
      if (::rename(from.c_str(), to.c_str()) != 0)
        throw_file_error(to, "renaming into place", errno);
      return;
    }
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
    if (errno != EINVAL && errno != ENOSYS) throw_file_error(to, "renaming into place", errno);
    const std::string aside = from + "-replaced";
    if (::rename(to.c_str(), aside.c_str()) != 0) throw_file_error(to, "renaming it", errno);
    if (::rename(from.c_str(), to.c_str()) != 0) throw_file_error(to, "renaming into place", errno);
    if (::rename(aside.c_str(), from.c_str()) != 0) throw_file_error(aside, "renaming it", errno);
  }

  void remove(const std::string& path) override {
    std::error_code code;
    std::filesystem::remove_all(path, code);
    if (code) throw_file_error(path, "removing it", code.value());
  }

  void sync_directory(const std::string& path) override { trident::sync_directory(path); }
};

}  // namespace

void FileSystem::write(const std::string& path, std::string_view contents) {
  const auto file = create(path, contents.size());
  file->write_at(0, as_bytes_of(contents));
  file->finish();
}

void FileSystem::replace(const std::string& path, std::string_view contents) {
  const std::string beside = fmt::format("{}.tmp-{}-0", path, ::getpid());
  std::error_code ignored;
  if (std::filesystem::is_directory(std::filesystem::symlink_status(path, ignored))) {
    throw_file_error(path, "replacing it", EISDIR);  // a rename would move the directory away
  }
  remove(beside);
  try {
    write(beside, contents);
    rename(beside, path);
  } catch (...) {
    try {
      remove(beside);
    } catch (const Error&) {
      // The first failure is more informative.
    }
    throw;
  }
  sync_directory(std::filesystem::path(path).parent_path().string());
}

FileSystem& real_files() {
  static RealFiles files;
  return files;
}

}  // namespace trident
