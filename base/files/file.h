// Files: read-only memory maps, positioned reads, and writes that leave nothing half-written.
// A path that can't be read is a RequestError (an input is wrong), unless the system is short of
// something or a file server doesn't answer: an Error, as a write that fails. They name the file,
// the operation and the system's reason. All types close themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trident {

// Error "path: operation failed: reason", the system's for an errno.
// NoRoom where that is the reason.
[[noreturn]] void throw_file_error(const std::string& path, std::string_view operation, int code);

class NoRoom : public Error {
 public:
  using Error::Error;
};

// Whether it is a directory, not a link to one, and this user's.
bool is_own_directory(const std::string& path);
// And that nobody else may write there.
bool is_private_directory(const std::string& path);
// Makes one that nobody else may enter, with what is missing of its parents, where there is none.
// Error where it can't be, or is no private directory.
void make_own_directory(const std::string& path);

// An open file descriptor, closed on destruction. Moves, never copies.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

// A regular file for reading at any position. Safe to use from several threads at once.
class ReadFile {
 public:
  explicit ReadFile(const std::string& path);

  // Fills `out` from byte `offset` on. A file that ends earlier is a RequestError; so is one whose
  // disk has lost what was there (EIO).
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  // Lets the system begin to read these bytes, if it will; doesn't wait.
  void will_read(std::uint64_t offset, std::uint64_t count) const noexcept;
  std::uint64_t size() const { return size_; }  // bytes, when it was opened
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::uint64_t size_ = 0;  // before file_, whose opening sets it
  FileDescriptor file_;
};

// A regular file mapped into memory, read-only. An empty file gives an empty span. The file must
// not be cut shorter while it is mapped (the kernel would end the process with SIGBUS).
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// The whole file. `max_bytes` is the most that is accepted; a bigger file is a RequestError.
std::string read_file(const std::string& path, std::uint64_t max_bytes = std::uint64_t{1} << 32);
// The same of what a user names on a command line, which may also be a pipe; waits for whoever
// writes there.
std::string read_stream(const std::string& path, std::uint64_t max_bytes);
std::string read_standard_input(std::uint64_t max_bytes);

// A file that appears under its name only when it is complete: it is written without a name or,
// where the file system can't do that, under a temporary one beside the target, and renamed by
// commit(). Without commit() it goes, so an exception on the way leaves the target as it was.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Appends after what was last appended.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Writes at a position; gaps read as zeros. Safe to call from several threads at once.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  // fsync, rename over the target, fsync of the directory. Call once, last. Error where there is a
  // file of that name by now and it isn't to be replaced.
  void commit(bool replaces = true);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string temporary_;  // "": it has no name, or has been committed
  FileDescriptor file_;
  std::uint64_t position_ = 0;
};

// To the disk: that files were made, renamed or removed there ("": the working directory). A file
// system that can't is no failure.
void sync_directory(const std::string& path);

void write_file_atomic(const std::string& path, std::string_view contents);
// The same where `path` is a file or none yet. What a link leads to is replaced, not the link; a
// device or a pipe is written to.
void write_file(const std::string& path, std::string_view contents);

// Appends whole records. If a record can't be written whole, what was written of it is cut off
// again and an Error is thrown, so the file always ends with a whole record.
class AppendFile {
 public:
  // Creates the file if it is missing; keeps what is there unless `truncate`.
  explicit AppendFile(const std::string& path, bool truncate = false);

  void append(std::span<const std::byte> record);
  void append(std::string_view record);
  // To the disk (fsync).
  void sync();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  FileDescriptor file_;
};

// RequestError where require_output_directory() would refuse, as far as can be told without
// writing.
void check_output_directory(const std::string& path);

// Makes `path` a directory that can be written, with its parents, and proves it by creating and
// removing a file there; otherwise a RequestError (the request names a place that can't be used).
void require_output_directory(const std::string& path);

// require_output_directory(), whose new directories go again with the object, or where it throws,
// unless something lies in them by then or somebody has locked them (flock).
class NewDirectories {
 public:
  explicit NewDirectories(const std::string& path);
  NewDirectories(NewDirectories&&) noexcept = default;
  NewDirectories& operator=(NewDirectories&&) = delete;
  ~NewDirectories();

 private:
  NewDirectories() = default;

  std::vector<std::string> made_;  // deepest first
};

}  // namespace trident
