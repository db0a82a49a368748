#include "base/files/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/files/bytes.h"

namespace trident {
namespace {

std::string reason(int code) {
  return std::system_category().message(code);
}

// Errors that the path itself causes. Any other error may be temporary.
bool is_of_the_path(int code) {
  for (const int one : {ENOENT, ENOTDIR, EISDIR, ELOOP, EACCES, EPERM, ENAMETOOLONG, ENXIO, ENODEV,
                        EIO, EINVAL, EOVERFLOW}) {
    if (code == one) return true;
  }
  return false;
}

FileDescriptor open_to_read(const std::string& path, std::uint64_t& size) {
  // Without O_NONBLOCK, opening a pipe that has no writer would block.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) {
    const int code = errno;
    const std::string what = fmt::format("{}: can't open: {}", path, reason(code));
    if (is_of_the_path(code)) throw RequestError(what);
    throw Error(what);
  }
  if (!S_ISREG(status.st_mode)) {
    throw RequestError(fmt::format("{}: not a regular file", path));
  }
  size = static_cast<std::uint64_t>(status.st_size);
  return file;
}

// The most bytes of one write call. Linux limits a call to 2 GiB anyway.
constexpr std::size_t kMaxWrite = std::size_t{1} << 30;

// Writes all of `bytes` by `step(remaining bytes, bytes done)`. Returns 0, or an errno.
template <class Step>
int write_fully(std::span<const std::byte> bytes, Step step) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto part = bytes.subspan(done, std::min(kMaxWrite, bytes.size() - done));
    const ssize_t n = step(part, done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENOSPC;
    done += static_cast<std::size_t>(n);
  }
  return 0;
}

// Whether the kernel's own file systems hold the directory. There mkdir fails although access()
// allows it.
bool is_kernels(const std::string& directory) {
  struct statfs system {};
  if (::statfs(directory.c_str(), &system) != 0) return false;
  const auto kind = static_cast<std::uint32_t>(system.f_type);
  return kind == PROC_SUPER_MAGIC || kind == SYSFS_MAGIC || kind == CGROUP_SUPER_MAGIC ||
         kind == CGROUP2_SUPER_MAGIC || kind == DEBUGFS_MAGIC || kind == TRACEFS_MAGIC ||
         kind == SECURITYFS_MAGIC || kind == DEVPTS_SUPER_MAGIC;
}

// PATH.tmp-<process>-<attempt>. A long file name is shortened.
std::string temporary_name(const std::string& path, int attempt) {
  const std::size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  return fmt::format("{}.tmp-{}-{}", path.substr(0, std::min(path.size(), name + 200)), ::getpid(),
                     attempt);
}

// Creates a file next to `path`, under an unused name. Several threads and processes may try at
// once.
FileDescriptor create_beside(const std::string& path, std::string& temporary) {
  for (int attempt = 0;; ++attempt) {
    temporary = temporary_name(path, attempt);
    FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() >= 0) return file;
    if (errno != EEXIST || attempt == 10000) throw_file_error(path, "creating it", errno);
  }
}

// Creates an unnamed file in the folder of `path`, if the system supports it. It disappears with
// the process, however the process ends.
FileDescriptor create_unnamed(const std::string& path) {
  if (::access("/proc/self/fd", X_OK) != 0) return {};  // needed later to name the file
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return FileDescriptor(
      ::open(folder.empty() ? "." : folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666));
}

// Throws Error if a file of that name exists. Returns false if the file system doesn't support this
// rename, and no such file exists.
bool renamed_to_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
  struct stat status {};
  if (errno == EEXIST || ::lstat(to.c_str(), &status) == 0) {
    throw Error(to + ": another process has written a file of this name meanwhile");
  }
  return false;
}

// Names an unnamed file with a temporary name next to `path`.
std::string name_beside(const std::string& path, int file) {
  for (int attempt = 0;; ++attempt) {
    std::string name = temporary_name(path, attempt);
    if (::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", file).c_str(), AT_FDCWD, name.c_str(),
                 AT_SYMLINK_FOLLOW) == 0) {
      return name;
    }
    if (errno != EEXIST || attempt == 10000) throw_file_error(path, "naming it", errno);
  }
}

}  // namespace

void throw_file_error(const std::string& path, std::string_view operation, int code) {
  const std::string text = fmt::format("{}: {} failed: {}", path, operation, reason(code));
  if (code == ENOSPC || code == EDQUOT) throw NoRoom(text);
  throw Error(text);
}

bool is_own_directory(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

bool is_private_directory(const std::string& path) {
  struct stat status {};
  return is_own_directory(path) && ::lstat(path.c_str(), &status) == 0 &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

void make_own_directory(const std::string& path) {
  std::error_code ignored;  // mkdir below reports the reason
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw_file_error(path, "mkdir", errno);
  if (!is_private_directory(path)) {
    throw Error(path +
                ": not a directory that belongs to this user and that no other user may write to");
  }
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

ReadFile::ReadFile(const std::string& path) : path_(path), file_(open_to_read(path, size_)) {}

void ReadFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const auto part = out.subspan(done, std::min(kMaxWrite, out.size() - done));
    const ssize_t n =
        ::pread(file_.get(), part.data(), part.size(), static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EIO) {
      throw RequestError(fmt::format("{}: reading at {} failed: {}", path_, offset, reason(errno)));
    }
    if (n < 0) throw Error(fmt::format("{}: reading failed: {}", path_, reason(errno)));
    if (n == 0) {
      throw RequestError(fmt::format(
          "{}: truncated: {} bytes needed at offset {}, it has {}{}", path_, out.size(), offset,
          done, offset + out.size() <= size_ ? "; it was truncated after it was opened" : ""));
    }
    done += static_cast<std::size_t>(n);
  }
}

void ReadFile::will_read(std::uint64_t offset, std::uint64_t count) const noexcept {
  ::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(count),
                  POSIX_FADV_WILLNEED);
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  std::uint64_t size = 0;
  const FileDescriptor file = open_to_read(path, size);
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    throw Error(fmt::format("{}: mapping {} bytes failed: {}", path, size, reason(errno)));
  }
  bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_file(const std::string& path, std::uint64_t max_bytes) {
  const ReadFile file(path);
  if (file.size() > max_bytes) {
    throw RequestError(
        fmt::format("{}: {} bytes, at most {} are accepted here", path, file.size(), max_bytes));
  }
  std::string contents(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(contents.data(), contents.size())));
  return contents;
}

namespace {

std::string read_to_end(int file, const std::string& path, std::uint64_t max_bytes) {
  // Reads in parts: a pipe (`train <(jq … c.json)`) has no size, /dev/zero no end.
  std::string text;
  std::vector<char> part(1 << 16);
  while (true) {
    const ssize_t n = ::read(file, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw RequestError(fmt::format("{}: can't read: {}", path, reason(errno)));
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
    if (text.size() > max_bytes) {
      throw RequestError(fmt::format("{}: more than {} bytes", path, max_bytes));
    }
  }
}

}  // namespace

std::string read_stream(const std::string& path, std::uint64_t max_bytes) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) throw RequestError(fmt::format("{}: can't open: {}", path, reason(errno)));
  return read_to_end(file.get(), path, max_bytes);
}

std::string read_standard_input(std::uint64_t max_bytes) {
  return read_to_end(STDIN_FILENO, "standard input", max_bytes);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), file_(create_unnamed(path)) {
  struct stat status {};  // a name that is too long is refused before any write
  if (::lstat(path.c_str(), &status) != 0 && errno == ENAMETOOLONG) {
    throw_file_error(path, "naming it", errno);
  }
  if (file_.get() < 0) file_ = create_beside(path, temporary_);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write_at(position_, bytes);
  position_ += bytes.size();
}

void AtomicFile::write(std::string_view text) {
  write(as_bytes_of(text));
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  const int code = write_fully(bytes, [&](std::span<const std::byte> part, std::size_t done) {
    return ::pwrite(file_.get(), part.data(), part.size(), static_cast<off_t>(offset + done));
  });
  if (code != 0)
    throw_file_error(path_, fmt::format("writing {} bytes at {}", bytes.size(), offset), code);
}

void AtomicFile::commit(bool replaces) {
  if (file_.get() < 0) throw Error(path_ + ": committed twice");
  if (::fsync(file_.get()) != 0) throw_file_error(path_, "fsync", errno);
  if (temporary_.empty()) temporary_ = name_beside(path_, file_.get());
  // Some file systems (NFS, quotas) report a failed write only at close.
  if (::close(file_.release()) != 0) throw_file_error(path_, "closing", errno);
  if (replaces || !renamed_to_new(temporary_, path_)) {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      throw_file_error(path_, "renaming into place", errno);
  }
  temporary_.clear();
  sync_directory(std::filesystem::path(path_).parent_path().string());
}

void sync_directory(const std::string& path) {
  const std::string name = path.empty() ? "." : path;
  const FileDescriptor directory(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) {
    if (errno == EACCES) return;  // it may be writable but not readable
    throw_file_error(name, "opening this directory", errno);
  }
  if (::fsync(directory.get()) == 0) return;
  for (const int cannot : {EINVAL, EBADF, ENOSYS, EOPNOTSUPP, EROFS}) {
    if (errno == cannot) return;
  }
  throw_file_error(name, "fsync of this directory", errno);
}

void write_file_atomic(const std::string& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

void write_file(const std::string& path, std::string_view contents) {
  std::error_code none;
  const auto status = std::filesystem::status(path, none);  // follows links
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    AppendFile(path, false).append(contents);  // a device or a pipe
  } else if (std::filesystem::is_symlink(path, none)) {
    std::error_code code;
    const auto target = std::filesystem::weakly_canonical(path, code);
    if (code)
      throw RequestError(fmt::format("{}: can't follow this link: {}", path, code.message()));
    write_file_atomic(target.string(), contents);
  } else {
    write_file_atomic(path, contents);
  }
}

AppendFile::AppendFile(const std::string& path, bool truncate)
    : path_(path),
      file_(::open(path.c_str(),
                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0666)) {
  if (file_.get() < 0) throw_file_error(path_, "opening it to append", errno);
}

void AppendFile::append(std::span<const std::byte> record) {
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  const int code = write_fully(record, [&](std::span<const std::byte> part, std::size_t) {
    return ::write(file_.get(), part.data(), part.size());
  });
  if (code == 0) return;
  std::string note;
  // A device such as /dev/full can't be truncated.
  if (before >= 0 && ::ftruncate(file_.get(), before) != 0 && errno != EINVAL) {
    note = fmt::format("; truncating it to {} bytes failed, too: {}", before, reason(errno));
  }
  throw Error(
      fmt::format("{}: appending {} bytes failed: {}{}", path_, record.size(), reason(code), note));
}

void AppendFile::append(std::string_view record) {
  append(as_bytes_of(record));
}

void AppendFile::sync() {
  if (::fsync(file_.get()) != 0 && errno != EINVAL) throw_file_error(path_, "fsync", errno);
}

void check_output_directory(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const auto refuse = [&](const std::string& why) {
    throw RequestError(fmt::format("{}: can't make this directory: {}", path, why));
  };
  // The nearest existing parent has to accept the missing directories.
  fs::path at = fs::absolute(path, code).lexically_normal();
  while (!fs::exists(fs::symlink_status(at, code)) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, code)) refuse(at.string() + ": " + reason(ENOTDIR));
  if (::access(at.c_str(), W_OK | X_OK) != 0) {
    throw RequestError(fmt::format("{}: can't write in this directory ({})", path, reason(errno)));
  }
  if (is_kernels(at.string())) refuse(at.string() + ": the kernel's own files lie there");
}

void require_output_directory(const std::string& path) {
  check_output_directory(path);
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) {
    throw RequestError(fmt::format("{}: can't make this directory: {}", path, code.message()));
  }
  try {
    const AtomicFile probe((std::filesystem::path(path) / "probe").string());
  } catch (const Error& error) {
    throw RequestError(fmt::format("{}: can't write in this directory ({})", path, error.what()));
  }
}

NewDirectories::NewDirectories(const std::string& path) : NewDirectories() {
  namespace fs = std::filesystem;
  check_output_directory(path);
  std::error_code ignored;
  fs::path at;
  for (const fs::path& part : fs::absolute(path, ignored)) {
    at /= part;
    if (!part.empty() && ::mkdir(at.c_str(), 0777) == 0) made_.insert(made_.begin(), at.string());
  }
  require_output_directory(path);  // if it throws, the destructor still runs
}

NewDirectories::~NewDirectories() {
  for (const std::string& directory : made_) {
    // A process that has locked the directory intends to write there.
    const FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::rmdir(directory.c_str());
  }
}

}  // namespace trident
