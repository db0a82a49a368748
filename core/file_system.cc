#include "core/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/bytes.h"
#include "core/error.h"
#include "core/file.h"

namespace trident {
namespace {

class RealFile final : public OutputFile {
 public:
  RealFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    constexpr std::size_t most = std::size_t{1} << 30;  // Linux cuts a call at 2 GiB anyway
    while (!bytes.empty()) {
      const std::size_t count = std::min(most, bytes.size());
      const ssize_t n = ::pwrite(file_.get(), bytes.data(), count, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        throw_file_error(path_, fmt::format("writing {} bytes at {}", bytes.size(), offset),
                         n < 0 ? errno : ENOSPC);
      }
      offset += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  void finish() override {
    if (::fsync(file_.get()) != 0) throw_file_error(path_, "fsync", errno);
    if (::close(file_.release()) != 0) throw_file_error(path_, "closing", errno);
  }

 private:
  std::string path_;
  FileDescriptor file_;
};

class RealFiles final : public FileSystem {
 public:
  void make_directory(const std::string& path) override {
    std::error_code ignored;  // what is missing then fails below
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    if (::mkdir(path.c_str(), 0777) != 0) throw_file_error(path, "making this directory", errno);
  }

  std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) override {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0) throw_file_error(path, "creating it", errno);
    const auto size = static_cast<off_t>(bytes);
    // Not posix_fallocate, which writes zeros where the file system can't allocate.
    if (bytes > 0 && ::fallocate(file.get(), 0, 0, size) != 0 && errno != EOPNOTSUPP &&
        errno != ENOSYS) {
      throw_file_error(path, fmt::format("making room for {} bytes", bytes), errno);
    }
    if (::ftruncate(file.get(), size) != 0) throw_file_error(path, "setting its size", errno);
    return std::make_unique<RealFile>(path, std::move(file));
  }

  std::unique_ptr<OutputFile> open(const std::string& path) override {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file.get() < 0) throw_file_error(path, "opening it", errno);
    return std::make_unique<RealFile>(path, std::move(file));
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
  remove(beside);
  try {
    write(beside, contents);
    rename(beside, path);
  } catch (...) {
    try {
      remove(beside);
    } catch (const Error&) {
      // The first failure says more.
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
