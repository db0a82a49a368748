// Follows the advice of refused configs, in random configs, until no advice is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "base/files/json.h"
#include "engine/setup/from_config.h"
#include "tests/settings/support.h"

namespace trident {
namespace {

using nlohmann::json;

// Keys to set; null leaves a key out.
using Changes = std::map<std::string, json>;

// The names that messages use for keys.
const std::map<std::string, std::string> kCalled = {
    {"schedule", "pipeline.schedule"},
    {"pipeline_model_parallel_size", "parallel.pipeline_model_parallel_size"},
    {"virtual_pipeline_model_parallel_size", "parallel.virtual_pipeline_model_parallel_size"},
    {"tensor_model_parallel_size", "parallel.tensor_model_parallel_size"},
    {"sequence_length", "data.sequence_length"},
    {"micro_batch_size", "batch.micro_batch_size"},
    {"micro-batches", "batch.gradient_accumulation_steps"},
    {"deterministic", "training.deterministic"},
    {"device", "runtime.device"},
    {"dtype", "precision.dtype"},
    {"granularity", "activation_checkpointing.granularity"}};

std::string place_of(const std::string& problem) {
  const std::string before = "config: /";
  if (!problem.starts_with(before)) return "";
  std::string path = problem.substr(before.size(), problem.find(": ", 8) - before.size());
  std::ranges::replace(path, '/', '.');
  return path;
}

// The broken constraint: the text of the problem without values.
std::string rule_of(const std::string& problem) {
  const std::string said = problem.substr(0, problem.rfind("; "));
  static const std::regex values("\"[^\"]*\"|-?[0-9][0-9.e+-]*");
  return std::regex_replace(said, values, "#");
}

class Hint {
 public:
  explicit Hint(const std::string& problem) : place_(place_of(problem)) {
    const std::size_t at = problem.rfind("; ");
    if (at == std::string::npos) return;
    const std::string text = problem.substr(at + 2);
    if (!text.starts_with("use ") && !text.starts_with("leave it out")) return;
    gives_ = true;
    for (std::string part : split(text, ", or ")) {
      if (part.starts_with("use ")) part = part.substr(4);
      add(part);
    }
  }

  bool gives() const { return gives_; }
  const std::vector<Changes>& choices() const { return choices_; }

 private:
  static std::vector<std::string> split(const std::string& text, const std::string& by) {
    std::vector<std::string> parts{""};
    for (std::size_t at = 0; at < text.size();) {
      if (text.compare(at, by.size(), by) == 0) {
        parts.emplace_back();
        at += by.size();
      } else {
        parts.back() += text[at++];
      }
    }
    return parts;
  }

  // Adds a part of the advice: several keys, or one key with several values.
  void add(const std::string& part) {
    if (part == "leave it out") return choices_.push_back({{place_, nullptr}});
    static const std::regex key_first("(?:a )?([a-z_]+)(?: of)? (\\S.*)");
    static const std::regex key_last("(\\S.*) (micro-batches)");
    static const std::regex bound("^at (most|least) | or more$");
    Changes together;
    const std::vector<std::string> keys = split(part, " and ");
    for (std::string one : keys) {
      one = std::regex_replace(one, bound, "");
      std::smatch found;
      std::string key = place_, values = one;
      if (std::regex_match(one, found, key_first) && found[1] == "type") {
        key = place_.substr(0, place_.rfind('.')) + ".type";
        values = found[2];
      } else if (std::regex_match(one, found, key_first) && kCalled.contains(found[1])) {
        key = kCalled.at(found[1]);
        values = found[2];
      } else if (std::regex_match(one, found, key_last)) {
        key = kCalled.at(found[2]);
        values = found[1];
      }
      std::vector<json> read;
      for (const std::string& value : split(values, " or ")) {
        for (const std::string& each : split(value, ", ")) {
          json parsed = json::parse(each, nullptr, false);
          if (parsed.is_discarded()) {
            // Names of optimizers and models have no quotes. Other words are advice for people.
            if (values != one || key_of_place() == place_) return;
            key = key_of_place();
            parsed = each;
          }
          read.push_back(parsed);
        }
      }
      if (keys.size() > 1) {
        together[key] = read.front();
      } else {
        for (const json& value : read) choices_.push_back({{key, value}});
      }
    }
    if (!together.empty()) choices_.push_back(together);
  }

  // The key that names without a key belong to.
  std::string key_of_place() const {
    if (place_.starts_with("optimizer.params")) return "optimizer.type";
    return place_ == "model.num_query_groups" || place_ == "model.rotary_base" ||
                   place_ == "model.pad_token_id" || place_ == "model.head_dim"
               ? "model.architecture"
               : place_;
  }

  std::string place_;
  bool gives_ = false;
  std::vector<Changes> choices_;
};

class Draw {
 public:
  explicit Draw(unsigned seed) : engine_(seed) {}
  std::size_t below(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine_);
  }
  template <class T>
  T one_of(const std::vector<T>& list) {
    return list[below(list.size())];
  }
  std::int64_t from(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
  }

  // A random subset of the keys that constraints compare.
  Changes keys() {
    Changes drawn{{"model.num_layers", from(1, 9)},
                  {"model.hidden_size", from(1, 12) * 8},
                  {"model.num_attention_heads", from(1, 9)},
                  {"batch.global_batch_size", from(1, 40)},
                  {"data.train", json::array({{{"path", "text.txt"}}})},
                  {"data.sequence_length", from(1, 40)}};
    const auto sometimes = [&](const std::string& key, const json& value, std::int64_t often = 4) {
      if (from(1, often) == 1) drawn[key] = value;
    };
    const json names = {
        "naive",     "gpipe",        "1f1b", "interleaved_1f1b",        "looped_bfs",
        "zb_h1",     "zb_h2",        "zbv",  "interleaved_zero_bubble", "dualpipev",
        "pipedream", "pipedream_2bw"};
    sometimes("pipeline.schedule", names[below(names.size())], 2);
    sometimes("parallel.pipeline_model_parallel_size", from(1, 6), 2);
    sometimes("parallel.virtual_pipeline_model_parallel_size", from(1, 5), 2);
    sometimes("pipeline.microbatch_group_size_per_vp_stage", from(1, 6));
    sometimes("parallel.tensor_model_parallel_size", from(1, 6), 2);
    sometimes("parallel.sequence_parallel", true, 2);
    sometimes("parallel.data_parallel_size", from(1, 4), 2);
    sometimes("parallel.rank_order", "dp-tp");
    sometimes("model.architecture", "llama");
    sometimes("model.ffn_hidden_size", from(1, 60), 2);
    sometimes("model.num_query_groups", from(1, 6));
    sometimes("model.rotary_base", 500000.0);
    sometimes("model.head_dim", from(1, 9));
    sometimes("model.pad_token_id", from(0, 300));
    sometimes("model.max_position_embeddings", from(1, 40));
    sometimes("model.tie_word_embeddings", from(0, 1) == 1);
    sometimes("batch.micro_batch_size", from(1, 6), 2);
    sometimes("batch.gradient_accumulation_steps", from(1, 8));
    sometimes("batch.rampup_batch_size", {from(1, 9), from(1, 9), 100}, 6);
    sometimes("zero_optimization.stage", from(0, 3));
    sometimes("precision.dtype", from(0, 1) == 1 ? "fp16" : "bf16", 2);
    sometimes("precision.grad_accum_dtype", from(0, 1) == 1 ? "fp16" : "bf16", 6);
    sometimes("precision.tf32", true, 6);
    sometimes("precision.loss_scale", from(0, 1) == 1 ? json(1e-30) : json(8), 6);
    sometimes("precision.hysteresis", 3, 6);
    sometimes("precision.min_loss_scale", 1e6, 6);
    sometimes("activation_checkpointing.num_layers", 2, 6);
    sometimes("optimizer.type", one_of<std::string>({"SGD", "Adafactor"}));
    sometimes("optimizer.params.momentum", 0.5, 6);
    sometimes("optimizer.params.eps", 1e-6, 6);
    sometimes("gradient_clipping", 1.0);
    sometimes("scheduler.type", one_of<std::string>({"cosine", "linear", "polynomial", "wsd",
                                                     "exponential", "cosine_with_restarts"}));
    sometimes("scheduler.warmup_iters", from(1, 30));
    sometimes("scheduler.wsd_decay_iters", from(1, 30), 6);
    sometimes("scheduler.num_cycles", from(2, 30), 6);
    sometimes("scheduler.cycle_mult", 2.0, 6);
    sometimes("scheduler.gamma", 0.5, 6);
    sometimes("training.train_iters", from(1, 30), 2);
    sometimes("training.on_non_finite", "skip");
    sometimes("runtime.ranks_per_node", from(1, 6));
    sometimes("runtime.collective_algorithm", one_of<std::string>({"ring", "tree"}));
    sometimes("data.split", "0,1", 8);
    sometimes("data.tokenizer.path", "t.json", 8);
    return drawn;
  }

 private:
  std::mt19937 engine_;
};

std::string text_of(const Changes& keys) {
  json document = json::object();
  for (const auto& [key, value] : keys) {
    if (value.is_null()) continue;
    std::string path = "/" + key;
    std::ranges::replace(path, '.', '/');
    document[json::json_pointer(path)] = value;
  }
  return json_text(document);
}

// The problems that a run of the config would report, those of its schedule included.
std::vector<std::string> problems_in(const Changes& keys) {
  try {
    const Config config = parse(text_of(keys)).config;
    schedule_of(config);
    return {};
  } catch (const RequestError& error) {
    return error.problems();
  }
}

void follow(Changes& keys, const Changes& hint) {
  for (const auto& [key, value] : hint) {
    keys[key] = value;
    // The number of micro-batches is to be set, so the batch follows from it.
    if (key == "batch.gradient_accumulation_steps") keys.erase("batch.global_batch_size");
    if (key == "batch.gradient_accumulation_steps" && !keys.contains("batch.micro_batch_size")) {
      keys["batch.micro_batch_size"] = 1;
    }
  }
}

// Whether a person has to choose the value.
bool is_for_people(const std::string& problem) {
  const char* const endings[] = {"; use less, or leave the ramp out", "; use one of the two"};
  return problem.find("; use one that ") != std::string::npos ||
         std::ranges::any_of(endings, [&](auto end) { return problem.ends_with(end); });
}

TEST(ConfigHints, FollowingOneNeverLeadsToTheSameRefusalAgain) {
  std::set<std::string> followed;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Draw draw(seed);
    Changes keys = draw.keys();
    std::set<std::string> refused;  // texts of configs
    std::string history;
    for (;;) {
      ASSERT_TRUE(refused.insert(text_of(keys)).second) << seed << ": a circle\n" << history;
      std::vector<Changes> next;
      for (const std::string& problem : problems_in(keys)) {
        const Hint hint(problem);
        if (!hint.gives() || is_for_people(problem)) continue;
        ASSERT_FALSE(hint.choices().empty()) << "can't be followed: " << problem;
        for (const Changes& choice : hint.choices()) {
          Changes changed = keys;
          follow(changed, choice);
          for (const std::string& again : problems_in(changed)) {
            ASSERT_NE(rule_of(again), rule_of(problem)) << seed << ": " << text_of(keys) << "\n"
                                                        << problem << "\n"
                                                        << again;
          }
        }
        followed.insert(rule_of(problem));
        if (!next.empty()) continue;
        // The first key of the advice, with each of its values.
        const Changes& first = hint.choices().front();
        for (const Changes& choice : hint.choices()) {
          if (choice.begin()->first == first.begin()->first) next.push_back(choice);
        }
        history += text_of(keys) + "\n" + problem + "\n";
      }
      if (next.empty()) break;
      follow(keys, draw.one_of(next));
    }
  }
  // The number of constraints that the configs broke. With fewer, the draws would no longer cover
  // them.
  EXPECT_GT(followed.size(), 30u);
}

TEST(ConfigHints, MoreStagesThanLayersAreRefusedWithASizeThatFits) {
  EXPECT_THAT(
      problems_of({"parallel.pipeline_model_parallel_size=2",
                   "parallel.virtual_pipeline_model_parallel_size=3"}),
      ::testing::ElementsAre(::testing::HasSubstr("= 6 stages, more than num_layers (4); use "
                                                  "virtual_pipeline_model_parallel_size 2")));
}

}  // namespace
}  // namespace trident
