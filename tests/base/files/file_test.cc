#include "base/files/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/files/bytes.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using testing::FullDisk;
using ::testing::HasSubstr;
using testing::message_of;
using testing::slurp;
using testing::spit;
using testing::TempDir;

TEST(File, MapsAndReadsExistingFiles) {
  const TempDir dir;
  spit(dir / "a", "hello");
  const MappedFile map(dir / "a");
  ASSERT_EQ(map.bytes().size(), 5u);
  EXPECT_EQ(map.bytes()[4], std::byte{'o'});
  EXPECT_EQ(read_file(dir / "a"), "hello");
  std::array<std::byte, 2> part;
  ReadFile(dir / "a").read_at(3, part);
  EXPECT_EQ(part[1], std::byte{'o'});

  spit(dir / "empty", "");
  EXPECT_TRUE(MappedFile(dir / "empty").bytes().empty());
}

TEST(File, UnusableInputsAreRequestErrorsThatNameThePath) {
  const TempDir dir;
  spit(dir / "a", "hello");
  EXPECT_THAT(message_of<RequestError>([&] { MappedFile(dir / "none"); }),
              HasSubstr((dir / "none") + ": can't open: No such file"));
  EXPECT_THAT(message_of<RequestError>([&] { MappedFile(dir.path()); }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(message_of<RequestError>([&] { read_file(dir / "a", 4); }),
              HasSubstr("at most 4 are accepted"));
  std::array<std::byte, 4> part;
  EXPECT_THAT(message_of<RequestError>([&] { ReadFile(dir / "a").read_at(3, part); }),
              HasSubstr("truncated"));
}

TEST(File, AStreamMayBeAPipe) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  const std::string text(200'000, 'x');
  std::thread writer([&] { std::ofstream(dir / "pipe") << text; });
  EXPECT_TRUE(read_stream(dir / "pipe", text.size()) == text);
  writer.join();
  EXPECT_THAT(message_of<RequestError>([&] { read_stream("/dev/zero", 100'000); }),
              HasSubstr("/dev/zero: more than 100000 bytes"));
  EXPECT_THAT(message_of<RequestError>([&] { read_stream(dir.path(), 100); }),
              HasSubstr("can't read: Is a directory"));
  EXPECT_THAT(message_of<RequestError>([&] { read_stream(dir / "none", 100); }),
              HasSubstr("none: can't open: No such file"));
}

TEST(File, AtomicWriteReplacesTheTargetOnlyOnCommit) {
  const TempDir dir;
  spit(dir / "a", "old");
  {
    AtomicFile file(dir / "a");
    file.write("new text");
    file.write_at(0, as_bytes_of("N"));
    EXPECT_EQ(slurp(dir / "a"), "old");
    file.commit();
  }
  EXPECT_EQ(slurp(dir / "a"), "New text");
  { AtomicFile(dir / "a").write("discarded"); }
  EXPECT_EQ(slurp(dir / "a"), "New text");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(File, AtomicWriteTakesTheLongestNamesAndRefusesLongerOnesAtOnce) {
  const TempDir dir;
  const std::string longest(255, 'x');
  write_file_atomic(dir / longest, "text");
  EXPECT_EQ(slurp(dir / longest), "text");
  EXPECT_THAT(message_of<Error>([&] { AtomicFile(dir / (longest + "x")); }),
              HasSubstr("naming it failed: File name too long"));
  EXPECT_THAT(dir.names(), ElementsAre(longest));
}

TEST(File, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const TempDir dir;
  spit(dir / "a", "old");
  std::string message;
  {
    const FullDisk full(1000);
    message = message_of<Error>([&] { write_file_atomic(dir / "a", std::string(5000, 'x')); });
  }
  EXPECT_THAT(message, HasSubstr((dir / "a") + ": writing 5000 bytes"));
  EXPECT_EQ(slurp(dir / "a"), "old");
  EXPECT_THAT(dir.names(), ElementsAre("a"));
}

TEST(File, AppendKeepsCompleteRecordsWhenTheDiskIsFull) {
  const TempDir dir;
  AppendFile file(dir / "log");
  file.append("first\n");
  std::string message;
  {
    const FullDisk full(10);
    message = message_of<Error>([&] { file.append("second, too long\n"); });
  }
  EXPECT_THAT(message, HasSubstr("appending 17 bytes failed: File too large"));
  EXPECT_EQ(slurp(dir / "log"), "first\n");
  file.append("third\n");
  file.sync();
  AppendFile(dir / "log").append("fourth\n");
  EXPECT_EQ(slurp(dir / "log"), "first\nthird\nfourth\n");
  AppendFile(dir / "log", true).append("new\n");
  EXPECT_EQ(slurp(dir / "log"), "new\n");
}

TEST(File, AFullDeviceIsNamedAsTheSystemNamesIt) {
  AppendFile full("/dev/full");
  EXPECT_THAT(message_of<Error>([&] { full.append("x"); }),
              HasSubstr("/dev/full: appending 1 bytes failed: No space left on device"));
}

TEST(File, LinksAndPipesAreWrittenThrough) {
  const TempDir dir;
  spit(dir / "file", "old");
  std::filesystem::create_symlink("file", dir / "link");
  write_file(dir / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(slurp(dir / "file"), "new");
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = slurp(dir / "pipe"); });
  write_file(dir / "pipe", "through");
  reader.join();
  EXPECT_EQ(read, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(dir / "pipe"));
  std::filesystem::create_symlink("loop", dir / "loop");
  EXPECT_THAT(message_of<RequestError>([&] { write_file(dir / "loop", "x"); }),
              HasSubstr("loop: can't follow this link: "));
  write_file(dir / "none yet", "x");
  EXPECT_EQ(slurp(dir / "none yet"), "x");
}

TEST(File, AnUnusableOutputDirectoryIsAClearError) {
  const TempDir dir;
  spit(dir / "file", "x");
  EXPECT_THAT(message_of<Error>([&] { write_file_atomic(dir / "none/a", "x"); }),
              HasSubstr("creating it failed: No such file or directory"));
  // Root may write anywhere except below a file and into the kernel's own directories.
  EXPECT_THAT(message_of<Error>([&] { write_file_atomic(dir / "file/a", "x"); }),
              HasSubstr("Not a directory"));
  EXPECT_THAT(message_of<RequestError>([&] { require_output_directory(dir / "file/out"); }),
              HasSubstr("can't make this directory"));
  EXPECT_THAT(message_of<RequestError>([&] { require_output_directory("/proc/self"); }),
              HasSubstr("can't write in this directory"));
  require_output_directory(dir / "a/b");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b"));
  EXPECT_THAT(std::filesystem::is_empty(dir / "a/b"), true);
}

TEST(File, NewDirectoriesAreRemovedAgainUnlessTheyAreUsed) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "there");
  {
    const NewDirectories made(dir / "there/x/../y/z/");
    EXPECT_TRUE(std::filesystem::is_directory(dir / "there/y/z"));
    EXPECT_TRUE(std::filesystem::is_directory(dir / "there/x"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir / "there"));
  {
    const NewDirectories made(dir / "used/by/others");
    spit(dir / "used/by/file", "x");
    const NewDirectories again(dir / "used/by/others");  // creates no directory, so removes none
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "used/by/file"));
  EXPECT_FALSE(std::filesystem::exists(dir / "used/by/others"));
  FileDescriptor held;
  {
    const NewDirectories made(dir / "locked");
    held = FileDescriptor(::open((dir / "locked").c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(::flock(held.get(), LOCK_EX), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "locked"));
}

TEST(File, ManyThreadsMayWriteTheSameTarget) {
  const TempDir dir;
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'e'; ++c) {
    threads.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) write_file_atomic(dir / "t", std::string(3000, c));
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string text = slurp(dir / "t");
  EXPECT_EQ(text, std::string(3000, text[0]));
  EXPECT_THAT(dir.names(), ElementsAre("t"));
}

}  // namespace
}  // namespace trident
