// `trident launch` reads hostfiles and chooses the number of ranks.
#include "run/supervisor/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "support/temp_dir.h"

namespace trident::testing {
namespace {

using ::testing::HasSubstr;

std::vector<Host> hosts_of(const std::string& text) {
  const TempDir dir;
  write_file_atomic(dir / "hosts", text);
  return read_hosts(dir / "hosts");
}

TEST(Hosts, AreReadAsOpenMpiReadsThem) {
  EXPECT_EQ(hosts_of("# all\na\nb slots=4 max_slots=8 # here\na\n\nc.d-e_f slots=0\n10.0.0.1\n"),
            (std::vector<Host>{{"a", 2}, {"b", 4}, {"10.0.0.1", 1}}));
  EXPECT_EQ(hosts_of("a slots=1000000\na slots=1000000\n"), (std::vector<Host>{{"a", 1000000}}));
}

// A host name becomes a word of the commands of ssh and mpirun.
TEST(Hosts, NamesThatNoHostHasAreRefused) {
  for (const char* text :
       {"-oProxyCommand=touch${IFS}x slots=1", "a;b", "$(x)", "/bin/true", "a slots=", "a slots=-1",
        "a slots=1000001", "a slots=9223372036854775807", "a slots=1x", "a slot=1", "# none\n",
        "a slots=0", "\xff\xfe"}) {
    EXPECT_THROW(hosts_of(text), RequestError) << text;
  }
}

class ChosenRanks : public ::testing::Test {
 protected:
  Ranks choose(std::optional<std::int64_t> least, std::optional<std::int64_t> most,
               std::optional<std::int64_t> available, std::vector<std::string> set = {}) {
    write_file_atomic(dir_ / "text", std::string(2000, 'a'));
    write_file_atomic(dir_ / "c.json", R"({"model": {"architecture": "gpt2", "num_layers": 4,
      "hidden_size": 16, "num_attention_heads": 4, "vocab_size": 256},
      "batch": {"global_batch_size": 8, "micro_batch_size": 1},
      "data": {"train": [{"path": "text"}], "sequence_length": 16},
      "training": {"train_iters": 2}})");
    return choose_ranks({.path = dir_ / "c.json", .set = std::move(set)}, least, most, available);
  }
  const TempDir dir_;
};

TEST_F(ChosenRanks, AreAllThatThereAreWhereTheLayoutIsChosen) {
  const std::vector<std::string> chosen{"parallel=auto"};
  EXPECT_EQ(choose({}, 7, {}, chosen).count, 7);
  EXPECT_EQ(choose(2, 7, 5, chosen).count, 5);
  EXPECT_FALSE(choose(2, 7, 5, chosen).adapted);
  EXPECT_TRUE(choose(2, 7, 5, chosen).pass_ranks_option);
  EXPECT_THROW(choose(6, 7, 5, chosen), RequestError);
  EXPECT_THROW(choose({}, {}, {}, chosen), RequestError);
}

TEST_F(ChosenRanks, AreTheMostThatOtherSizesAndTheBatchDivide) {
  const std::vector<std::string> pairs{"parallel.tensor_model_parallel_size=2"};
  EXPECT_EQ(choose(1, {}, 7).count, 4);
  EXPECT_EQ(choose(1, {}, 7, pairs).count, 4);
  EXPECT_EQ(choose(1, 5, {}, pairs).count, 4);
  EXPECT_EQ(choose({}, 100, {}, pairs).count, 16);  // one sample for each
  EXPECT_EQ(choose({}, {}, 7).count, 1);
  EXPECT_FALSE(choose({}, {}, 7).adapted);
  EXPECT_THROW(choose(5, {}, 7), RequestError);
  EXPECT_THROW(choose({}, {}, 1, pairs), RequestError);
  EXPECT_THROW(choose(1, {}, 1, pairs), RequestError);
}

TEST_F(ChosenRanks, AreRefusedWithTheReason) {
  const auto why = [&](auto... arguments) -> std::string {
    try {
      choose(arguments...);
      return "";
    } catch (const RequestError& error) {
      return error.what();
    }
  };
  using Number = std::optional<std::int64_t>;
  const Number none;
  const std::vector<std::string> pairs{"parallel.tensor_model_parallel_size=2"};
  EXPECT_EQ(why(Number(4), Number(2), none), "--min-ranks: 4 is more than --max-ranks (2)");
  EXPECT_EQ(why(Number(4), Number(2), Number(8)), "--min-ranks: 4 is more than --max-ranks (2)");
  EXPECT_EQ(why(Number(1), Number(8), Number(0)),
            "there are no ranks: no host or device is available");
  EXPECT_EQ(why(Number(4), Number(8), Number(3)), "--min-ranks: 4 are asked for, there are 3");
  EXPECT_EQ(why(Number(4), Number(8), Number(1)), "--min-ranks: 4 are asked for, there is 1");
  EXPECT_EQ(why(Number(4), none, none),
            "--min-ranks: 4 is more than the config's 1 rank; --max-ranks allows more");
  EXPECT_EQ(why(Number(1), none, Number(1), pairs),
            "the config's other parallel sizes take 2 ranks, and there may be 1 at most");
  EXPECT_EQ(why(Number(5), none, Number(7)),
            "no number of ranks from 5 to 7 goes with this config:\n"
            "config: /batch/global_batch_size: 8 is not a multiple of micro_batch_size (1) × "
            "data_parallel_size (7) = 7; use 7 or 14");
}

TEST_F(ChosenRanks, OfManyAreFoundAtOnce) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(choose(1, {}, 1000000000000).count, 8);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace trident::testing
