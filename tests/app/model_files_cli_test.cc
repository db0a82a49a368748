// The program reads model files from other programs: exit codes, terminal output, and the remaining
// files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelFiles : public ::testing::Test {
 protected:
  ModelFiles() {
    spit(dir / "text.txt", small_text());
    spit(dir / "c.json", config.dump());
  }
  Outcome run(const std::vector<std::string>& arguments) const {
    return run_program(arguments, {.directory = dir.path()});
  }
  void expect_refused(const std::vector<std::string>& arguments, const std::string& message) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << "a terminal would obey it";
    EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  }
  void change(const std::string& path, const json& keys) const {
    json document = json::parse(slurp(dir / path));
    document.update(keys);
    spit(dir / path, document.dump());
  }

  TempDir dir;
  const json config{{"model", {{"num_layers", 1}, {"hidden_size", 8}, {"num_attention_heads", 2}}},
                    {"batch", {{"micro_batch_size", 2}}},
                    {"data", {{"train", {{{"path", "text.txt"}}}}, {"sequence_length", 8}}},
                    {"training", {{"train_iters", 1}}},
                    {"checkpoint", {{"save", "weights"}}},
                    {"logging", {{"dir", "run"}}}};
};

TEST_F(ModelFiles, ExportsForLlamaCpp) {
  ASSERT_EQ(run(train_arguments({})).code, 0);
  const Outcome written = run({"export", "run", "x.gguf", "--outtype", "q8_0"});
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_EQ(written.err, "x.gguf: 4 matrices are stored as f16: 32 doesn't divide their rows\n")
      << "and llama.cpp has a tokenizer of bytes";
  const std::string before = slurp(dir / "x.gguf");
  EXPECT_EQ(before.substr(0, 4), "GGUF");
  expect_refused({"export", "run", "x.gguf"}, "x.gguf: is there already");
  expect_refused({"export", "run", "out", "--outtype", "f16"}, "--outtype: is for a FILE.gguf");
  expect_refused({"checkpoint", "export", "weights", "out.gguf"},
                 "out.gguf: a directory is written");
  EXPECT_EQ(slurp(dir / "x.gguf"), before);
  EXPECT_EQ(run({"export", "run", "x.gguf", "--outtype", "f32", "--overwrite"}).code, 0);
  EXPECT_GT(slurp(dir / "x.gguf").size(), before.size());
}

TEST_F(ModelFiles, IdsOfTokensAndSettingsOfGenerationSurviveTrainingOnExportAndImport) {
  ASSERT_EQ(run(train_arguments({})).code, 0);
  change("weights/config.json", {{"eos_token_id", 11}, {"bos_token_id", 12}, {"pad_token_id", 13}});
  const std::string generation = R"({"eos_token_id": [11, 14]})";
  spit(dir / "weights/generation_config.json", generation);
  const Outcome trained = run(
      train_arguments({"checkpoint.load=weights", "checkpoint.save=weights2", "logging.dir=run2"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  ASSERT_EQ(run({"export", "run2", "exported"}).code, 0);
  ASSERT_EQ(run({"import", "exported", "imported"}).code, 0);
  for (const std::string place : {"weights2", "exported", "imported"}) {
    const json written = json::parse(slurp(dir / (place + "/config.json")));
    EXPECT_EQ(written.at("eos_token_id"), 11) << place;
    EXPECT_EQ(written.at("bos_token_id"), 12) << place;
    EXPECT_EQ(written.at("pad_token_id"), 13) << place;
    EXPECT_EQ(slurp(dir / (place + "/generation_config.json")), generation) << place;
  }
  const Outcome again = run({"import", "exported", "imported"});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("imported: holds a model already"));
  EXPECT_EQ(run({"import", "exported", "imported", "--overwrite"}).code, 0);

  // `generate` takes a run's directory in place of its weights.
  const Outcome run_itself = run({"generate", "run2", "--prompt", "In", "--tokens", "4"});
  EXPECT_EQ(run_itself.code, 0) << run_itself.err;
  expect_refused(train_arguments({"checkpoint.load=run", "logging.dir=out"}),
                 "config: /checkpoint/load: run is the folder of a run; name that of its weights, "
                 "\"weights\"");
  EXPECT_EQ(run_itself.out, run({"generate", "weights2", "--prompt", "In", "--tokens", "4"}).out);
}

TEST_F(ModelFiles, KeysThatTransformersDoesNotKnowAreNamedAndKept) {
  ASSERT_EQ(run(train_arguments({})).code, 0);
  change("weights/config.json",
         {{"unk_token_id", 0}, {"my_trainer", {{"lr", 1}}}, {"n_\x1b[2J", 1}});
  const std::string named =
      "weights/config.json: transformers doesn't know my_trainer, n_\\x1b[2J, unk_token_id: "
      "ignored, and kept in saved directories";
  const Outcome trained = run(
      train_arguments({"checkpoint.load=weights", "checkpoint.save=weights2", "logging.dir=run2"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, HasSubstr(named));
  const Outcome imported = run({"import", "weights", "imported"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_EQ(imported.err, named + "\n");
  const Outcome generated = run({"generate", "weights", "--prompt", "In", "--tokens", "4"});
  EXPECT_THAT(generated.err, HasSubstr(named));
  std::ofstream(dir / "requests") << R"({"context": [1], "continuation": [2]})"
                                  << "\n";
  const Outcome scored = run({"eval", "weights", "--score", "requests"});
  EXPECT_EQ(scored.code, 0) << scored.err;
  EXPECT_THAT(scored.err, HasSubstr(named));
  const Outcome exported = run({"export", "weights", "model.gguf"});
  EXPECT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr(named));
  for (const std::string place : {"weights2", "imported"}) {
    const json written = json::parse(slurp(dir / (place + "/config.json")));
    EXPECT_EQ(written.at("unk_token_id"), 0) << place;
    EXPECT_EQ(written.at("my_trainer"), json({{"lr", 1}})) << place;
  }
}

TEST_F(ModelFiles, EveryCommandRefusesAModelThatItWouldComputeDifferently) {
  ASSERT_EQ(run(train_arguments({})).code, 0);
  const auto commands = [&](const std::string& message) {
    expect_refused({"generate", "weights", "--prompt", "x"}, message);
    expect_refused({"export", "weights", "out"}, message);
    expect_refused({"import", "weights", "out"}, message);
    expect_refused(
        train_arguments({"checkpoint.load=weights", "checkpoint.save=out", "logging.dir=run2"}),
        message);
    EXPECT_FALSE(std::filesystem::exists(dir / "run2"));
  };
  change("weights/config.json", {{"activation_function", "gelu"}});
  commands("weights/config.json: /activation_function: \"gelu\": not supported");
  change("weights/config.json", {{"activation_function", "gelu_new"}, {"n_head", 0}});
  commands("weights/config.json: /n_head: 0: needs a whole number");
  change("weights/config.json", {{"n_head", 2}, {"scale_attn_weights", "\x1b[2J"}});
  commands("weights/config.json: /scale_attn_weights: \"\\u001b[2J\": not supported");
}

TEST_F(ModelFiles, APipeInPlaceOfAFileDoesNotHoldUp) {
  ASSERT_EQ(run(train_arguments({})).code, 0);
  for (const char* name : {"weights/model.safetensors", "weights/config.json"}) {
    const std::string kept = slurp(dir / name);
    std::filesystem::remove(dir / name);
    ASSERT_EQ(::mkfifo((dir / name).c_str(), 0600), 0);
    expect_refused({"generate", "weights", "--prompt", "x"},
                   std::string(name) + ": not a regular file");
    expect_refused({"import", "weights", "out"}, std::string(name) + ": not a regular file");
    spit(dir / name, kept);
  }
  for (const char* name : {"p.bin", "p.idx"}) ASSERT_EQ(::mkfifo((dir / name).c_str(), 0600), 0);
  expect_refused(train_arguments({"data.train.0.path=p", "logging.dir=out"}),
                 "config: /data/train/0/path: p.bin: not a regular file");
}

TEST_F(ModelFiles, AConfigFileWithANameThatIsNoTextIsRefused) {
  json unnamed = config;
  unnamed.erase("logging");
  spit(dir / "\xff\x1b.json", unnamed.dump());
  expect_refused({"train", "\xff\x1b.json"},
                 "config: /logging/dir: the config file's name, "
                 "\"\\xff\\x1b\", can't name a directory");
}

}  // namespace
}  // namespace trident::testing
