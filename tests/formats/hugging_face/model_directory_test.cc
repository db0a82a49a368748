// Tests directories of weights, hostile ones too: the errors before anything is allocated, and the
// contents that survive a conversion.
#include "formats/hugging_face/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "engine/setup/registry.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/hugging_face_check.h"
#include "formats/hugging_face/safetensors.h"
#include "run/evaluation/convert.h"
#include "run/folders/run_folder.h"
#include "tests/support/temp_dir.h"

namespace trident::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const ArchitectureSet architectures = built_in_architectures();

const json gpt2 = json::parse(R"({
  "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 8, "n_head": 2,
  "n_layer": 2, "n_positions": 4, "vocab_size": 16, "bos_token_id": 3, "eos_token_id": 5,
  "pad_token_id": 7, "resid_pdrop": 0.2, "torch_dtype": "float32"})");
const json llama = json::parse(R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8,
  "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1,
  "intermediate_size": 12, "max_position_embeddings": 8, "vocab_size": 16, "hidden_act": "silu",
  "rms_norm_eps": 1e-6, "rope_theta": 500000.0, "eos_token_id": 5})");

// The tensors that transformers lists for the model.
std::vector<TensorDeclaration> tensors_of(const json& config, DType dtype = DType::f32) {
  std::vector<TensorDeclaration> list;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape) {
    list.push_back({std::move(name), dtype, std::move(shape)});
  };
  if (config.at("model_type") == "llama") {
    add("model.embed_tokens.weight", {16, 8});
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(layer + norm + ".weight", {8});
    }
    for (const char* name : {"q_proj", "o_proj"})
      add(layer + "self_attn." + name + ".weight", {8, 8});
    for (const char* name : {"k_proj", "v_proj"})
      add(layer + "self_attn." + name + ".weight", {4, 8});
    for (const char* name : {"gate_proj", "up_proj"})
      add(layer + "mlp." + name + ".weight", {12, 8});
    add(layer + "mlp.down_proj.weight", {8, 12});
    add("model.norm.weight", {8});
    add("lm_head.weight", {16, 8});
    return list;
  }
  add("transformer.wte.weight", {16, 8});
  add("transformer.wpe.weight", {4, 8});
  for (const char* layer : {"transformer.h.0.", "transformer.h.1."}) {
    for (const char* norm : {"ln_1", "ln_2"}) {
      add(layer + std::string(norm) + ".weight", {8});
      add(layer + std::string(norm) + ".bias", {8});
    }
    const std::tuple<const char*, int, int> linear[] = {
        {"attn.c_attn", 8, 24}, {"attn.c_proj", 8, 8}, {"mlp.c_fc", 8, 32}, {"mlp.c_proj", 32, 8}};
    for (const auto& [name, in, out] : linear) {
      add(layer + std::string(name) + ".weight", {in, out});
      add(layer + std::string(name) + ".bias", {out});
    }
  }
  add("transformer.ln_f.weight", {8});
  add("transformer.ln_f.bias", {8});
  return list;
}

class ModelDirectory : public ::testing::Test {
 protected:
  // Writes the directory again. The bytes of a tensor count up from its place in the list.
  void write(const json& config, const std::vector<TensorDeclaration>& tensors,
             const std::string& name = "model", std::uint64_t shard = 1 << 30) const {
    std::filesystem::remove_all(dir / name);
    std::filesystem::create_directory(dir / name);
    spit(dir / (name + "/config.json"), config.dump());
    SafetensorsSetWriter writer(dir / name, tensors, shard);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      std::vector<std::byte> bytes(tensors[t].bytes());
      // Every 16 bits are a small number, which is finite in every type.
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>(i % 2 == 1 ? 0x3c : (i + 31 * t) % 128);
      }
      writer.write(tensors[t].name, bytes);
    }
    writer.finish();
  }
  std::vector<std::string> problems(const std::string& name = "model") const {
    try {
      config_of_directory(architectures, dir / name);
      return {};
    } catch (const RequestError& error) {
      return error.problems();
    }
  }

  TempDir dir;
};

TEST_F(ModelDirectory, ValidOnesAreAccepted) {
  write(gpt2, tensors_of(gpt2));
  EXPECT_THAT(problems(), IsEmpty());
  EXPECT_EQ(config_of_directory(architectures, dir / "model").precision.dtype, "fp32");
  write(llama, tensors_of(llama, DType::bf16));
  EXPECT_THAT(problems(), IsEmpty());
  EXPECT_EQ(config_of_directory(architectures, dir / "model").precision.dtype, "bf16")
      << "its config says nothing";
  // The tensors of a bare model, with the buffers and the tied head of older versions.
  std::vector<TensorDeclaration> bare = tensors_of(gpt2);
  for (auto& tensor : bare) tensor.name = tensor.name.substr(std::string("transformer.").size());
  bare.push_back({"h.0.attn.bias", DType::u8, {1, 1, 4, 4}});
  bare.push_back({"h.1.attn.masked_bias", DType::f32, {}});
  write(gpt2, bare);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(ModelDirectory, AConfigThatClaimsMoreThanTheFileHoldsIsRefusedBeforeAnythingIsAllocated) {
  const auto claim = [&](const char* key, std::int64_t value) {
    json config = gpt2;
    config[key] = value;
    write(config, tensors_of(gpt2));
    return problems();
  };
  EXPECT_THAT(claim("n_layer", 100'000),
              Contains(HasSubstr("transformer.h.2.ln_1.weight is missing")));
  EXPECT_THAT(claim("n_embd", 1'000'000),
              Contains(HasSubstr("tensor transformer.wte.weight has the shape [16, 8], the config "
                                 "needs [16, 1000000]")));
  EXPECT_THAT(claim("n_embd", 10'000'000),
              Contains(HasSubstr("/model/hidden_size: makes 3.2e+15 parameters")));
  EXPECT_THAT(claim("vocab_size", 1'000'000'000), Contains(HasSubstr("transformer.wte.weight")));
  EXPECT_THAT(claim("n_positions", 1'000'000), Contains(HasSubstr("transformer.wpe.weight")));
  EXPECT_THAT(claim("n_head", 3), Contains(HasSubstr("not a multiple of num_attention_heads")));
}

// A list of layers would have ten million numbers.
TEST_F(ModelDirectory, AConfigOfTooManyLayersIsRefusedBeforeTheyAreListed) {
  const json window{{"sliding_window", 4}};
  const json qwen_window{{"use_sliding_window", true}, {"sliding_window", 4}};
  const json experts{{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 4}};
  const json local_experts{{"num_local_experts", 4}, {"num_experts_per_tok", 2}};
  const json latent{{"n_routed_experts", 4},   {"num_experts_per_tok", 2}, {"n_group", 1},
                    {"topk_group", 1},         {"q_lora_rank", nullptr},   {"kv_lora_rank", 4},
                    {"qk_nope_head_dim", 4},   {"qk_rope_head_dim", 2},    {"v_head_dim", 4},
                    {"num_key_value_heads", 2}};
  const std::pair<const char*, std::vector<json>> families[] = {
      {"llama", {}},
      {"mistral", {window}},
      {"qwen2", {qwen_window, {{"max_window_layers", 0}}}},
      {"qwen3", {qwen_window, {{"max_window_layers", 0}}}},
      {"mixtral", {window, local_experts}},
      {"qwen2_moe", {experts, {{"mlp_only_layers", {0}}, {"shared_expert_intermediate_size", 4}}}},
      {"qwen3_moe", {experts, qwen_window}},
      {"olmoe", {experts}},
      {"deepseek_v3", {latent, {{"first_k_dense_replace", 1}}}},
      {"gpt_oss", {local_experts, window}}};
  for (const auto& [family, keys] : families) {
    json config = llama;
    config.erase("architectures");
    config["model_type"] = family;
    for (const json& some : keys) config.update(some);
    const auto text = [&](std::int64_t layers) {
      config["num_hidden_layers"] = layers;
      return architectures.at(family)->formats().model_config(config.dump());
    };
    EXPECT_EQ(json::parse(text(3)).at("num_layers"), 3) << family;
    EXPECT_LT(text(10'000'000).size(), 5000) << family;
    write(config, {});
    EXPECT_THAT(problems(), Contains(HasSubstr("/model/num_layers: 10000000 "))) << family;
  }
}

TEST_F(ModelDirectory, TensorsThatTheModelWouldLeaveOutAreNamed) {
  std::vector<TensorDeclaration> tensors = tensors_of(llama);
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", DType::f32, {8}});
  tensors.push_back({"score.\x1bweight", DType::f32, {2, 8}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2}});
  write(llama, tensors);
  EXPECT_THAT(
      problems(),
      ElementsAre(HasSubstr("tensor model.layers.0.self_attn.q_proj.bias belongs to no parameter"),
                  HasSubstr("tensor score.\\x1bweight belongs to no parameter")));
  write(gpt2, [] {
    auto list = tensors_of(gpt2);
    list[4].dtype = DType::i32;
    return list;
  }());
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("has the dtype I32, need F64, F32, BF16 or F16")));
}

TEST_F(ModelDirectory, ATiedHeadThatDiffersFromTheTableIsRefused) {
  std::vector<TensorDeclaration> tensors = tensors_of(gpt2);
  tensors.push_back({"lm_head.weight", DType::f32, {16, 8}});
  write(gpt2, tensors);
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("tensor lm_head.weight differs from "
                                                "transformer.wte.weight")));
  SafetensorsSetWriter writer(dir / "model", tensors);
  for (const auto& tensor : tensors)
    writer.write(tensor.name, std::vector<std::byte>(tensor.bytes()));
  writer.finish();
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(ModelDirectory, ARunsConfigMustAgreeInEveryNumberThatItsModelComputesWith) {
  write(llama, tensors_of(llama));
  const auto request = [&](json changes) {
    json config{
        {"model",
         {{"architecture", "llama"},
          {"num_layers", 1},
          {"hidden_size", 8},
          {"num_attention_heads", 2},
          {"num_query_groups", 1},
          {"ffn_hidden_size", 12},
          {"max_position_embeddings", 8},
          {"vocab_size", 16},
          {"norm_epsilon", 1e-6},
          {"rotary_base", 500000.0}}},
        {"batch", {{"micro_batch_size", 1}}},
        {"data", {{"train", {{{"path", "x"}}}}, {"tokenizer", {{"type", "file"}, {"path", "t"}}}}},
        {"training", {{"train_iters", 1}}}};
    config["model"].update(changes);
    const Config loaded =
        parse_config(config.dump(), {}, {.constraints = built_in_constraints()}).config;
    return message_of<RequestError>([&] {
      check_hugging_face(dir / "model", loaded, *architectures.at(loaded.model.architecture));
    });
  };
  EXPECT_EQ(request(json::object()), "");
  EXPECT_EQ(request({{"norm_epsilon", 9.99999997475242e-07}}), "") << "the same in fp32";
  EXPECT_THAT(request({{"norm_epsilon", 1e-5}}),
              HasSubstr("config: /model/norm_epsilon: 1e-05 differs from 1e-06 in "));
  EXPECT_THAT(request({{"rotary_base", 10000.0}}),
              HasSubstr("config: /model/rotary_base: 10000.0 differs from 500000.0 in "));
  EXPECT_THAT(request({{"tie_word_embeddings", true}}), HasSubstr("/model/tie_word_embeddings"));
  EXPECT_THAT(
      request({{"architecture", "gpt2"}, {"num_query_groups", 2}, {"rotary_base", 10000.0}}),
      HasSubstr("/model_type: \"llama\": needs \"gpt2\""));
}

TEST_F(ModelDirectory, PipesFoldersAndLinksAreRefusedAtOnce) {
  const auto place = [&](const char* name, auto make) {
    write(gpt2, tensors_of(gpt2));
    const std::string path = dir / (std::string("model/") + name);
    std::filesystem::remove(path);
    make(path);
    const std::string message = message_of<RequestError>(
        [&] { convert_weights(architectures, dir / "model", dir / "out"); });
    EXPECT_THAT(message, HasSubstr(path));
    EXPECT_FALSE(std::filesystem::exists(dir / "out")) << name;
  };
  for (const char* name :
       {"config.json", "model.safetensors", "generation_config.json", "tokenizer_config.json"}) {
    place(name, [](const std::string& at) { ASSERT_EQ(::mkfifo(at.c_str(), 0600), 0); });
    place(name, [](const std::string& at) { std::filesystem::create_directory(at); });
    place(name, [](const std::string& at) { std::filesystem::create_symlink(at, at); });
    place(name, [](const std::string& at) { std::filesystem::create_symlink("/dev/zero", at); });
  }
  for (const char* name : {"config.json", "model.safetensors", "generation_config.json"}) {
    place(name, [](const std::string& at) { spit(at, ""); });
    place(name, [](const std::string& at) { spit(at, "[1, 2"); });
  }
}

TEST_F(ModelDirectory, AnIndexNamesEachTensorOfItsFilesOnce) {
  const auto index_with = [&](const char* tensor, const json& file) {
    write(gpt2, tensors_of(gpt2), "model", 2000);
    const std::string path = dir / "model/model.safetensors.index.json";
    json index = json::parse(slurp(path));
    if (file.is_null()) {
      index["weight_map"].erase(tensor);
    } else {
      index["weight_map"][tensor] = file;
    }
    spit(path, index.dump());
    return problems();
  };
  constexpr auto wte = "transformer.wte.weight";
  EXPECT_THAT(index_with("transformer.h.9", "nowhere.safetensors"),
              ElementsAre(HasSubstr("nowhere.safetensors: can't open")));
  for (const json& name : {json(".."), json("."), json(""), json("../model.safetensors"),
                           json("/etc/passwd"), json("a\nb"), json(4), json::array()}) {
    EXPECT_THAT(index_with(wte, name), ElementsAre(HasSubstr("needs the name of a file beside it")))
        << name;
  }
  EXPECT_THAT(index_with(wte, nullptr), ElementsAre(HasSubstr("doesn't name it")));
  const json index = json::parse(slurp(dir / "model/model.safetensors.index.json"));
  EXPECT_THAT(index_with(wte, index["weight_map"]["transformer.ln_f.bias"]),
              ElementsAre(HasSubstr("no tensor \"transformer.wte.weight\"")));
}

TEST_F(ModelDirectory, DamagedBytesAreAcceptedOrRefusedWithAMessage) {
  write(gpt2, tensors_of(gpt2), "model", 2000);
  ASSERT_THAT(problems(), IsEmpty());
  const json index = json::parse(slurp(dir / "model/model.safetensors.index.json"));
  const std::string first =
      dir / ("model/" + index["weight_map"]["transformer.wte.weight"].get<std::string>());
  std::mt19937 random(1);
  const std::vector<std::pair<std::string, std::size_t>> files = {
      {dir / "model/config.json", 1 << 20},
      {dir / "model/model.safetensors.index.json", 1 << 20},
      {first, 600}};  // its header
  const std::string tokens[] = {"-",     "0",    "9999999999999999999",
                                "1e400", "null", "[",
                                "{}",    "\"",   "\\u0000",
                                "\xff",  "\x1b", "true",
                                ","};
  int refused = 0;
  for (const auto& [path, length] : files) {
    const std::string good = slurp(path);
    for (int round = 0; round < 400; ++round) {
      std::string bad = good;
      for (unsigned change = 0; change <= round % 3u; ++change) {
        const std::size_t at = random() % std::min(length, bad.size());
        if (random() % 2 == 0) {
          bad[at] = static_cast<char>(random());
        } else {
          bad.replace(at, random() % 4, tokens[random() % std::size(tokens)]);
        }
      }
      if (random() % 16 == 0) bad.resize(random() % bad.size());
      spit(path, bad);
      const std::vector<std::string> found = problems();  // any other exception ends the test
      refused += !found.empty();
      for (const std::string& problem : found) {
        EXPECT_EQ(problem.find('\x1b'), std::string::npos);
        EXPECT_EQ(problem.find("json.exception"), std::string::npos) << problem;
      }
    }
    spit(path, good);
  }
  EXPECT_GT(refused, 900);
}

TEST_F(ModelDirectory, AConversionKeepsEveryBitAndOtherFilesOfTheFolder) {
  json config = gpt2;
  config["torch_dtype"] = "bfloat16";  // although the tensors are F32
  config["summary_type"] = "mean";
  write(config, tensors_of(gpt2));
  const std::string generation = R"({"eos_token_id": [5, 6], "top_p": 0.9})";
  spit(dir / "model/generation_config.json", generation);
  spit(dir / "model/tokenizer_config.json", "{}");
  convert_weights(architectures, dir / "model", dir / "out");
  const SafetensorsSet from(dir / "model"), to(dir / "out");
  for (const SafetensorsEntry* entry : from.tensors()) {
    std::vector<std::byte> a(entry->bytes()), b(to.at(entry->name).bytes());
    ASSERT_EQ(to.at(entry->name).dtype_name, "F32");
    from.read(entry->name, a);
    to.read(entry->name, b);
    EXPECT_EQ(a, b) << entry->name;
  }
  const json written = json::parse(slurp(dir / "out/config.json"));
  EXPECT_EQ(written.at("torch_dtype"), "float32");
  for (const char* key :
       {"bos_token_id", "eos_token_id", "pad_token_id", "resid_pdrop", "summary_type", "n_layer"}) {
    EXPECT_EQ(written.at(key), config.at(key)) << key;
  }
  EXPECT_EQ(slurp(dir / "out/generation_config.json"), generation);
  EXPECT_EQ(slurp(dir / "out/tokenizer_config.json"), "{}");
}

TEST_F(ModelDirectory, AConversionReplacesNothingUnasked) {
  write(gpt2, tensors_of(gpt2));
  write(llama, tensors_of(llama), "other");
  const std::string before = slurp(dir / "other/model.safetensors");
  const auto convert = [&](const std::string& to, bool overwrite) {
    return message_of<RequestError>(
        [&] { convert_weights(architectures, dir / "model", to, overwrite); });
  };
  EXPECT_THAT(convert(dir / "other", false), HasSubstr("holds a model already"));
  EXPECT_EQ(slurp(dir / "other/model.safetensors"), before);
  // A complete save of a dead process counts as a model, and so does the model next to it.
  std::filesystem::create_directories(dir / "dead/.trident-saving");
  std::filesystem::create_directories(dir / "words");
  for (const char* file : {"dead/.trident-saving/config.json", "words/vocab.json"}) {
    spit(dir / file, "{}");
    const std::string to = dir / std::filesystem::path(file).begin()->string();
    EXPECT_THAT(convert(to, false), HasSubstr("holds a model already"));
    EXPECT_EQ(slurp(dir / file), "{}");
  }
  {
    const FolderLock other(dir / "other");
    EXPECT_THAT(convert(dir / "other", true), HasSubstr("is in use"));
    EXPECT_EQ(slurp(dir / "other/model.safetensors"), before);
  }
  EXPECT_THAT(convert(dir / "model/../model", true), HasSubstr("the directory to read from"));
  std::filesystem::create_directory(dir / "logs");
  spit(dir / "logs/metrics.jsonl", "");
  EXPECT_THAT(convert(dir / "logs", true), HasSubstr("holds the log files of a run"));
  EXPECT_EQ(convert(dir / "other", true), "");
  EXPECT_THAT(slurp(dir / "other/config.json"), HasSubstr("gpt2"));
  write(gpt2, tensors_of(gpt2, DType::f64));
  EXPECT_THAT(convert(dir / "new", false), HasSubstr("F64"));
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
}

TEST_F(ModelDirectory, ARunsDirectoryStandsForTheWeightsThatItSaved) {
  write(gpt2, tensors_of(gpt2));
  std::filesystem::create_directory(dir / "run");
  const auto weights_of = [&](const json& checkpoint) {
    spit(dir / "run/config.json",
         json{{"training", json::object()}, {"checkpoint", checkpoint}}.dump());
    return message_of<RequestError>([&] { weights_directory(dir / "run"); });
  };
  EXPECT_EQ(weights_directory(dir / "model"), dir / "model");
  EXPECT_EQ(weights_of({{"save", dir / "model"}}), "");
  EXPECT_EQ(weights_directory(dir / "run"), dir / "model");
  EXPECT_THAT(weights_of({{"save", nullptr}}), HasSubstr("saved no weights"));
  EXPECT_THAT(weights_of({{"save", 4}}), HasSubstr("saved no weights"));
  EXPECT_THAT(weights_of(json::array()), HasSubstr("saved no weights"));
  EXPECT_THAT(weights_of({{"save", "no\nwhere"}}),
              HasSubstr("\"no\\nwhere\" is no directory here"));
}

}  // namespace
}  // namespace trident::testing
