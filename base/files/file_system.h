// What is done to files that must not be lost, behind an interface: a test gives one whose disk is
// full, slow or broken. Every failure is an Error that names the path, the operation and the
// system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trident {

// A file that is open for writing. Closes itself.
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  // All of `bytes`, by finish() at the latest: then a failure is told there. From several threads
  // at once, and from several objects of one file, at places that don't overlap.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  // To the disk, then closes it. Some file systems tell of a failed write only here.
  virtual void finish() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // With what is missing of its parents. Error where it is there.
  virtual void make_directory(const std::string& path) = 0;
  // A new file of this size, whose blocks are taken from the disk at once where it can do that: a
  // full disk is found before anything is written.
  virtual std::unique_ptr<OutputFile> create(const std::string& path, std::uint64_t bytes) = 0;
  // One that somebody has created.
  virtual std::unique_ptr<OutputFile> open(const std::string& path) = 0;
  // Replaces a file that is there. Directories change places where both are there, in one step
  // where the file system can do that; else what was at `to` is at `from` afterwards.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  // A file, or a directory and all in it; nothing where there is none.
  virtual void remove(const std::string& path) = 0;
  // That files were made, renamed or removed there. A file system that can't is no failure.
  virtual void sync_directory(const std::string& path) = 0;

  // create(), write and finish() in one.
  void write(const std::string& path, std::string_view contents);
  // The same under another name, which then becomes `path`.
  void replace(const std::string& path, std::string_view contents);
};

// This machine's.
FileSystem& real_files();

}  // namespace trident
