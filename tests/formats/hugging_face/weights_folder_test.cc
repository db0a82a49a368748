// Replaces a set of weights in a process that dies at each of its steps.
#include "formats/hugging_face/weights_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/files/file.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/safetensors.h"
#include "tests/support/temp_dir.h"

namespace {

// The renames and removals left until this process kills itself. It dies before the step that finds
// 0.
int steps_to_live = -1;

void step() {
  if (steps_to_live >= 0 && steps_to_live-- == 0) ::raise(SIGKILL);
}

}  // namespace

// These functions replace those of the C library.
extern "C" int rename(const char* from, const char* to) noexcept {
  step();
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
extern "C" int unlink(const char* path) noexcept {
  step();
  return static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
extern "C" int fsync(int) {
  return 0;  // the machine doesn't die here, and its disks are slow
}

namespace trident::testing {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

// Saves a model of three tensors that all have this value, in shards if `limit` is few bytes. Odd
// values also save generation settings and a vocabulary and belong to a run. Even values save a
// tokenizer, which stays in the folder.
void save(const std::string& directory, float value, std::uint64_t limit) {
  NewWeights folder(directory);
  SafetensorsSetWriter writer(
      folder.path(), {{"a", DType::f32, {4}}, {"b", DType::f32, {4}}, {"c", DType::f32, {4}}},
      limit);
  const std::vector<float> values(4, value);
  for (const char* name : {"a", "b", "c"}) writer.write(name, std::as_bytes(std::span(values)));
  writer.finish();
  const bool odd = static_cast<int>(value) % 2 == 1;
  write_file_atomic(folder.path() + (odd ? "/generation_config.json" : "/tokenizer.json"),
                    std::to_string(value));
  if (odd) {
    write_file_atomic(folder.path() + "/vocab.json", std::to_string(value));
    folder.sign("run " + std::to_string(static_cast<int>(value)));
  }
  write_file_atomic(folder.path() + "/config.json", std::to_string(value));
  folder.commit();
}

// The value of the model that a reader finds. Its config must have the same value as each tensor.
// Nothing if there is no config.json.
std::optional<float> load(const std::string& directory) {
  if (!std::filesystem::exists(directory + "/config.json")) return std::nullopt;
  const float value = std::stof(slurp(directory + "/config.json"));
  const SafetensorsSet set(directory);
  EXPECT_EQ(set.tensors().size(), 3U);
  for (const char* name : {"a", "b", "c"}) {
    std::vector<float> values(4);
    set.read(name, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, std::vector<float>(4, value)) << "parts of two sets";
  }
  const bool odd = static_cast<int>(value) % 2 == 1;
  EXPECT_EQ(slurp(directory + (odd ? "/generation_config.json" : "/tokenizer.json")),
            std::to_string(value));
  for (const char* name : {"/generation_config.json", "/vocab.json"}) {
    EXPECT_EQ(std::filesystem::exists(directory + name), odd) << "went along with the other set";
  }
  return value;
}

// The value that a copy of an unfinished directory loads, after the steps that read_model_config()
// advises.
std::optional<float> load_moved_by_hand(const std::string& directory) {
  namespace fs = std::filesystem;
  const TempDir copy;
  fs::copy(directory, copy.path(),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  for (const std::string& name : left_of_old_set(directory)) fs::remove(copy / name);
  for (const auto& file : fs::directory_iterator(unfinished_save(copy.path()))) {
    fs::copy(file.path(), copy.path(), fs::copy_options::overwrite_existing);
  }
  return load(copy.path());
}

TEST(WeightsFolder, AProcessThatDiesAtAnyStepLeavesACompleteSetOrNone) {
  int refusals = 0, deaths = 0;
  // Sets in one file (limit 1000), two shards (32) and three shards (16), each after each.
  for (const std::uint64_t before : {1000, 32, 16}) {
    for (const std::uint64_t after : {1000, 32, 16}) {
      for (int steps = 0;; ++steps) {
        SCOPED_TRACE(::testing::Message() << before << " to " << after << ", step " << steps);
        const TempDir dir;
        save(dir.path(), 1, before);
        spit(dir / "model-00001-of-00009.safetensors", "another program's");
        const pid_t child = ::fork();
        if (child == 0) {
          steps_to_live = steps;
          save(dir.path(), 2, after);
          ::_exit(0);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        const bool died = WIFSIGNALED(status);
        const std::optional<float> found = load(dir.path());
        if (died) {
          ++deaths;
          EXPECT_THAT(found, AnyOf(Eq(std::nullopt), Eq(1.0F), Eq(2.0F)));
          if (!found) {
            ++refusals;
            EXPECT_THAT([&] { read_model_config(dir.path()); },
                        ThrowsMessage<RequestError>(HasSubstr(unfinished_save(dir.path()))));
            EXPECT_NE(unfinished_save(dir.path()), "");
            EXPECT_NE(weights_in(dir.path()), "");
            EXPECT_EQ(load_moved_by_hand(dir.path()), 2);
          }
          EXPECT_EQ(run_of_weights(dir.path()),
                    unfinished_save(dir.path()).empty() && found == 1.0F ? "run 1" : "");
          finish_save(dir.path());
          // A complete set is never lost: the old one remains, or the new one once it is complete.
          EXPECT_THAT(load(dir.path()), AnyOf(Eq(found.value_or(2)), Eq(2.0F)));
          EXPECT_THAT(dir.names(), Not(Contains(".trident-saving")));
          save(dir.path(), 3, after);
          EXPECT_EQ(load(dir.path()), 3);
          std::filesystem::remove(dir / "tokenizer.json");  // of the second set, if it was saved
        } else {
          EXPECT_EQ(found, 2);
        }
        EXPECT_EQ(slurp(dir / "model-00001-of-00009.safetensors"), "another program's");
        std::size_t files = 4;  // config.json, its companion, the foreign file, the weights
        if (after == 32) files = 6;
        if (after == 16) files = 7;
        if (died) files += 2;  // the third set's owner and vocabulary
        EXPECT_EQ(dir.names().size(), files);
        if (!died) break;
      }
    }
  }
  EXPECT_GT(deaths, 60);
  EXPECT_GT(refusals, 10);
}

TEST(WeightsFolder, ASaveThatFailsLeavesOnlyTheOldSet) {
  const TempDir dir;
  save(dir.path(), 1, 32);
  const auto before = dir.names();
  EXPECT_THROW(
      {
        NewWeights folder(dir.path());
        write_file_atomic(folder.path() + "/model.safetensors", "half of it");
        throw Error("the disk is full");
      },
      Error);
  EXPECT_EQ(dir.names(), before);
  EXPECT_EQ(load(dir.path()), 1);
}

// The old set's index may be any text.
TEST(WeightsFolder, AnOldIndexThatCanNotBeFollowedBreaksNoSave) {
  for (const char* text : {"", "[]", "{\"weight_map\": {\"a\": \"a.safetensors\"}}",
                           "{\"weight_map\": {\"a\": \"../out.safetensors\"}}"}) {
    const TempDir dir;
    save(dir.path(), 1, 32);
    spit(dir / "model.safetensors.index.json", text);
    std::filesystem::create_directory(dir / "a.safetensors");
    save(dir.path(), 2, 1000);
    EXPECT_EQ(load(dir.path()), 2);
    EXPECT_TRUE(std::filesystem::exists(dir / "a.safetensors"));
  }
  const TempDir dir;
  save(dir.path(), 1, 32);
  std::filesystem::resize_file(dir / "model.safetensors.index.json", std::uintmax_t{6} << 30);
  save(dir.path(), 2, 1000);
  EXPECT_EQ(load(dir.path()), 2);
}

TEST(WeightsFolder, FilesOfADeadSaveAreSpaceForTheNextOne) {
  const TempDir dir;
  EXPECT_EQ(unfinished_bytes(dir.path()), 0);
  std::filesystem::create_directory(dir / ".trident-saving");
  spit(dir / ".trident-saving/model.safetensors.tmp-1-0", std::string(1 << 20, 'x'));
  EXPECT_GE(unfinished_bytes(dir.path()), 1 << 20);
  spit(dir / ".trident-saving/config.json", "{}");  // a complete set stays
  EXPECT_EQ(unfinished_bytes(dir.path()), 0);
}

TEST(WeightsFolder, ALinkInPlaceOfTheFolderOfASaveIsNotFollowed) {
  const TempDir dir, other;
  save(other.path(), 1, 1000);
  std::filesystem::create_directory_symlink(other.path(), dir / ".trident-saving");
  save(dir.path(), 2, 1000);
  EXPECT_EQ(load(dir.path()), 2);
  EXPECT_EQ(load(other.path()), 1);
}

// The files may be the user's, or belong to the same model that is trained in place.
TEST(WeightsFolder, ATokenizersFilesStay) {
  const TempDir dir;
  save(dir.path(), 1, 1000);
  // The last file replaces the run's own.
  const char* const files[]{"tokenizer_config.json", "merges.txt", "vocab.json"};
  for (const char* name : files) spit(dir / name, name);
  save(dir.path(), 2, 16);
  for (const char* name : files) EXPECT_EQ(slurp(dir / name), name);
  EXPECT_THAT(companions_that_stay(dir.path(), {"tokenizer.json"}),
              ElementsAre("tokenizer_config.json", "vocab.json", "merges.txt"));
}

TEST(WeightsFolder, FilesThatWereBeingWrittenAreRemovedAndNoOthers) {
  const TempDir dir;
  for (const char* name : {"model.safetensors.tmp-12-0", "config.json.tmp-3-1", "mine.txt.tmp-1-2",
                           "a.json.tmp-x-1", "notes.tmp", "model.safetensors.tmp-12"}) {
    spit(dir / name, "x");
  }
  finish_save(dir.path());
  EXPECT_THAT(dir.names(), ElementsAre("a.json.tmp-x-1", "mine.txt.tmp-1-2",
                                       "model.safetensors.tmp-12", "notes.tmp"));
}

}  // namespace
}  // namespace trident::testing
