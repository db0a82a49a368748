#include "run/evaluation/evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <span>

#include "base/error.h"
#include "base/files/file.h"
#include "core/device.h"
#include "datasets/indexed_writer.h"
#include "engine/evaluator.h"
#include "engine/setup/from_config.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/model_directory.h"
#include "run/evaluation/evaluation_bytes.h"
#include "support/source_dir.h"
#include "support/temp_dir.h"

namespace trident {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::spit;
using testing::TempDir;

TEST(EvaluationWindows, CountEachTokenButTheFirstOnce) {
  for (const std::int64_t tokens : {2, 7, 8, 9, 16, 17, 18, 100}) {
    for (const std::int64_t stride : {1, 3, 8}) {
      std::int64_t next = 1;  // the next token to be predicted
      const EvaluationWindows windows{tokens, 8, stride};
      for (std::int64_t i = 0; i < windows.count(); ++i) {
        const EvaluationWindow window = windows[i];
        EXPECT_EQ(window.begin + window.first + 1, next);
        EXPECT_GE(window.begin, 0);
        EXPECT_LE(window.first + window.counted, 8);
        if (next > 8) {
          EXPECT_GE(window.first, 8 - stride) << "too little context";
          EXPECT_LE(window.counted, stride);
        }
        next += window.counted;
      }
      EXPECT_EQ(next, tokens) << tokens << " by " << stride;
    }
  }
}

// Counts the bytes of the text itself, independent of the tokenizer.
TEST(EvaluationBytes, AreThoseOfTheText) {
  const TempDir dir;
  std::int64_t size = 0;
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    const std::string text = "Ünïcode, NUMBER " + std::to_string(i) + ": \xef\xac\x81ne words\n";
    size += std::ssize(text);
    lines += "{\"text\": \"" + text.substr(0, text.size() - 1) + "\\n\"}\n";
  }
  spit(dir / "a.jsonl", lines);
  for (const char* name : {"byte_level", "word_piece", "metaspace", "unigram", ""}) {
    DocumentEncoder encoder{.end_of_document = '\n'};
    if (*name != '\0') {
      const std::string path = source_dir() + "/tests/golden/tokenizers/" + name + ".json";
      encoder.tokenizer_text = read_file(path);
      encoder.tokenizer = std::make_shared<Tokenizer>(encoder.tokenizer_text, path);
      encoder.end_of_document = 1;
    }
    const TextAccess access{
        .encoder = [&] { return encoder; }, .cache = dir / "cache", .writes = true};
    const auto source = open_token_source(dir / "a.jsonl", 1 << 20, access);
    const auto bytes = [&](std::int64_t begin, std::int64_t end) {
      return text_bytes_of(*source, begin, end, encoder.tokenizer.get());
    };
    const std::int64_t n = source->size();
    EXPECT_EQ(bytes(0, n), size) << name;
    EXPECT_EQ(bytes(0, n / 3) + bytes(n / 3, n / 2) + bytes(n / 2, n), size) << name;
    EXPECT_NEAR(static_cast<double>(bytes(n / 3, n / 2)) / static_cast<double>(size), 1.0 / 6, 0.01)
        << name;
    EXPECT_LT(bytes(0, 1), 12) << name << ": the first token, which is not predicted";
  }
}

// A small model and random tokens.
class EvaluationTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::string weights() const { return source_dir() + "/tests/golden/" + GetParam() + "/model"; }

  EvaluationTest() {
    const Config config = config_of_directory(built_in_architectures(), weights());
    vocabulary_ = config.model.vocab_size;
    write("a", 45);
    write("short", 5);
  }
  void write(const std::string& name, std::int64_t tokens) {
    std::mt19937 random(7);
    std::vector<std::int32_t>& ids = tokens_[name];
    for (std::int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(vocabulary_)));
    }
    IndexedWriter writer(dir_ / name, vocabulary_);
    writer.append(ids);
    writer.end_document();
    writer.commit();
  }
  Evaluation evaluated(EvaluationRequest request) const {
    request.directory = weights();
    request.set.push_back("data.sequence_length=8");
    request.set.push_back("data.cache_path=" + (dir_ / "cache"));
    return evaluate(request, {}, {});
  }
  // The expected sum: each token's loss from the logits after the tokens before it. The context has
  // at most 8 tokens and at least 8 less `stride`, except at the text's beginning.
  double expected(const std::vector<std::int32_t>& ids, std::int64_t stride) const {
    const Config config = config_of_directory(built_in_architectures(), weights());
    const auto architecture = architecture_of(config);
    const Schedule schedule = schedule_of(config);
    const auto device = make_cpu_device();
    double sum = 0;
    run_local(1, {}, [&](Transport& transport) {
      Context context(*device, 1);
      RankModel model(context, config, *architecture, schedule,
                      topology_of(config.parallel, schedule, transport));
      Evaluator evaluator(model, schedule);
      load_hugging_face(model, weights());
      const auto n = static_cast<std::int64_t>(ids.size());
      for (std::int64_t at = 1; at < n; ++at) {
        std::int64_t begin = 0;
        while (at - begin > 8) begin += std::min(stride, n - 1 - begin - 8);
        const auto logits = evaluator.next_logits(std::span(ids).subspan(
            static_cast<std::size_t>(begin), static_cast<std::size_t>(at - begin)));
        double total = 0;
        for (const float logit : logits) total += std::exp(static_cast<double>(logit));
        const auto label = static_cast<std::size_t>(ids[static_cast<std::size_t>(at)]);
        sum += std::log(total) - static_cast<double>(logits[label]);
      }
    });
    return sum;
  }

  TempDir dir_;
  std::int64_t vocabulary_ = 0;
  std::map<std::string, std::vector<std::int32_t>> tokens_;
};

TEST_P(EvaluationTest, GivesTheLossOfEveryTokenInItsContext) {
  for (const std::int64_t stride : {0, 3}) {
    const Evaluation result = evaluated({.data = {dir_ / "a", dir_ / "short"}, .stride = stride});
    ASSERT_EQ(result.rows.size(), 2u);
    for (const EvaluationRow& row : result.rows) {
      const auto& ids = tokens_.at(row.source == dir_ / "a" ? "a" : "short");
      EXPECT_EQ(row.part, "all");
      EXPECT_EQ(row.tokens, std::ssize(ids) - 1);
      EXPECT_FALSE(row.bits_per_byte()) << "there is no tokenizer";
      const double sum = expected(ids, stride > 0 ? stride : 8);
      EXPECT_NEAR(row.loss_sum, sum, 1e-5 * sum) << row.source << " by " << stride;
      EXPECT_DOUBLE_EQ(row.perplexity(), std::exp(row.loss_sum / static_cast<double>(row.tokens)));
    }
    ASSERT_EQ(result.sums.size(), 1u);
    EXPECT_EQ(result.sums[0].tokens, 44 + 4);
    EXPECT_EQ(result.sums[0].loss_sum, result.rows[0].loss_sum + result.rows[1].loss_sum);
  }
}

TEST_P(EvaluationTest, NoLayoutChangesTheLoss) {
  const EvaluationRequest request{.data = {dir_ / "a", dir_ / "short"}};
  const Evaluation alone = evaluated(request);
  const auto with = [&](std::vector<std::string> set) {
    EvaluationRequest asked = request;
    asked.set = std::move(set);
    return evaluated(asked);
  };
  const std::string tensor = "parallel.tensor_model_parallel_size=2";
  const std::string pipeline = "parallel.pipeline_model_parallel_size=2";
  const std::string data = "parallel.data_parallel_size=3";
  for (const auto& set : {std::vector{data}, {pipeline}, {pipeline, data}}) {
    const Evaluation other = with(set);
    for (std::size_t i = 0; i < alone.rows.size(); ++i) {
      EXPECT_EQ(other.rows[i].loss_sum, alone.rows[i].loss_sum) << set.back() << ", bit for bit";
    }
  }
  for (const auto& set : {std::vector{tensor},
                          {tensor, pipeline, data, "zero_optimization.stage=3"},
                          {tensor, "parallel.sequence_parallel=true"},
                          {pipeline, "parallel.virtual_pipeline_model_parallel_size=2"},
                          {"batch.micro_batch_size=1", "batch.gradient_accumulation_steps=1"}}) {
    const Evaluation other = with(set);
    for (std::size_t i = 0; i < alone.rows.size(); ++i) {
      EXPECT_NEAR(other.rows[i].loss_sum, alone.rows[i].loss_sum, 1e-5 * alone.rows[i].loss_sum);
    }
  }
}

TEST_P(EvaluationTest, PartsAreThoseOfTheSplit) {
  const EvaluationRequest request{.data = {dir_ / "a"}, .split = "2,1,1"};
  const Evaluation held_out = evaluated(request);
  ASSERT_EQ(held_out.rows.size(), 2u);
  EXPECT_EQ(held_out.rows[0].part, "validation");
  EXPECT_EQ(held_out.rows[1].part, "test");
  const std::vector<std::int32_t>& ids = tokens_.at("a");  // 45 tokens: 0 to 23, to 34, to 45
  const double test = expected({ids.begin() + 34, ids.end()}, 8);
  EXPECT_EQ(held_out.rows[1].tokens, 10);
  EXPECT_NEAR(held_out.rows[1].loss_sum, test, 1e-5 * test);
  EvaluationRequest asked = request;
  asked.parts = {"train", "all"};
  const Evaluation other = evaluated(asked);
  ASSERT_EQ(other.rows.size(), 2u);
  EXPECT_EQ(other.rows[0].tokens + other.rows[1].tokens, 44 + 22);
}

TEST_P(EvaluationTest, WrongRequestsAreRefusedByName) {
  const auto refused = [&](EvaluationRequest request) {
    return message_of<RequestError>([&] { evaluated(std::move(request)); });
  };
  EXPECT_THAT(refused({}), HasSubstr("isn't a run's directory"));
  EXPECT_THAT(refused({.data = {dir_ / "none"}}), HasSubstr(dir_ / "none"));
  EXPECT_THAT(refused({.data = {dir_ / "a"}, .stride = 9}), HasSubstr("--stride: 9: is beyond"));
  EXPECT_THAT(refused({.data = {dir_ / "short"}, .split = "8,1,1"}),
              HasSubstr("\"validation\" holds 1 tokens of 5; needs 2"));
  EXPECT_THAT(refused({.data = {dir_ / "a"}, .parts = {"test"}}), HasSubstr("no source has such"));
  spit(dir_ / "text.txt", "some text");
  EXPECT_THAT(refused({.data = {dir_ / "text.txt"}}), HasSubstr("tokenizer.json"));
}

INSTANTIATE_TEST_SUITE_P(Models, EvaluationTest, ::testing::Values("gpt2", "llama"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace trident
