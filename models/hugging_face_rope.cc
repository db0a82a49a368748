#include "models/hugging_face_rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "base/printable.h"
#include "models/hugging_face_values.h"
#include "settings/config.h"
#include "settings/rope_types.h"

namespace trident {
namespace {

using nlohmann::json;

// The members of rope_parameters, of transformers 5.24, and what a value has to be.
enum class RopeValue : std::uint8_t { factor, size, number, number_or_zero, flag };
struct RopeMember {
  std::string_view name;
  RopeValue value;
  bool required = false;  // by transformers, where the type reads it
};
constexpr RopeMember rope_members[] = {
    {"factor", RopeValue::factor, true},
    {"original_max_position_embeddings", RopeValue::size},
    {"low_freq_factor", RopeValue::number, true},
    {"high_freq_factor", RopeValue::number, true},
    {"beta_fast", RopeValue::number},
    {"beta_slow", RopeValue::number},
    {"truncate", RopeValue::flag},
    {"attention_factor", RopeValue::number},
    {"mscale", RopeValue::number_or_zero},
    {"mscale_all_dim", RopeValue::number_or_zero},
};

// Whether the value is of that kind; "" or the rule that it breaks.
std::string rope_rule(RopeValue kind, const json& value) {
  switch (kind) {
    case RopeValue::factor:
      return as_positive(value).value_or(0) >= 1 ? "" : "needs a number from 1";
    case RopeValue::size:
      return as_size(value) ? "" : size_rule;
    case RopeValue::number:
      return as_positive(value) ? "" : positive_rule;
    case RopeValue::number_or_zero:
      return as_positive(value) || value == 0 ? "" : "needs a number from 0";
    case RopeValue::flag:
      return value.is_boolean() ? "" : "needs true or false";
  }
  return "";
}

// model.rope_scaling with the values of a config that gives none, all but the positions, which only
// some types have.
json usual_scaling() {
  const RopeScalingConfig usual;
  return {{"rope_type", usual.rope_type},
          {"factor", usual.factor},
          {"low_freq_factor", usual.low_freq_factor},
          {"high_freq_factor", usual.high_freq_factor},
          {"beta_fast", usual.beta_fast},
          {"beta_slow", usual.beta_slow},
          {"truncate", usual.truncate},
          {"attention_factor", usual.attention_factor},
          {"mscale", usual.mscale},
          {"mscale_all_dim", usual.mscale_all_dim}};
}

// Where nothing else gives the base, transformers computes with a null and fails.
void refuse_null_theta(HuggingFaceConfig& hf) {
  if (!hf.is_missing("rope_theta") && !hf.gives("rope_theta")) {
    hf.refuse("rope_theta", positive_rule);
  }
}

// Reads the object of one key, rope_scaling or rope_parameters.
class RopeReader {
 public:
  // `base`: the base that holds if there is none in the object.
  RopeReader(HuggingFaceConfig& hf, std::string_view key, double base, std::int64_t positions)
      : hf_(hf), key_(key), values_(hf.at(key)), base_(base), positions_(positions) {}

  // The model keys rotary_base and rope_scaling.
  json read() {
    json result{{"rotary_base", base_}, {"rope_scaling", usual_scaling()}};
    if (!values_.is_object()) {
      hf_.refuse(key_, "needs an object, or null");
      return result;
    }
    const RopeType* const type = find_type();
    if (type == nullptr) return result;
    json& scaling = result["rope_scaling"];
    scaling["rope_type"] = type->name;
    for (const auto& [member, value] : values_.items()) {
      if (member == "rope_type" || member == "type") continue;
      if (member == "rope_theta") {
        read_theta(value, result["rotary_base"]);
      } else {
        read_member(*type, member, value, scaling);
      }
    }
    complete(*type, scaling);
    if (!values_.contains("rope_theta")) refuse_null_theta(hf_);
    return result;
  }

 private:
  // Adds the problem "/key/member: VALUE: what".
  void problem(std::string_view member, const std::string& what) {
    const bool missing = !values_.contains(member);
    hf_.add_problem(fmt::format("/{}/{}: {}: {}", key_, printable(member),
                                missing ? "is missing" : shown_value(values_[member]), what));
  }

  // nullptr if its name is refused.
  const RopeType* find_type() {
    const std::string_view named = values_.contains("rope_type") ? "rope_type" : "type";
    const json name = values_.value(named, json("default"));
    const RopeType* const type =
        name.is_string() ? find_rope_type(name.get<std::string>()) : nullptr;
    if (type == nullptr) {
      std::string list;
      for (const RopeType& one : rope_types) {
        list += fmt::format("{}{}", list.empty() ? "" : ", ", one.name);
      }
      problem(named, "not supported; only " + list + " are");
    } else if (named == "rope_type" && values_.contains("type") && values_["type"] != name) {
      problem("type", fmt::format("/{}/rope_type says {}", key_, shown_value(name)));
    }
    return type;
  }

  void read_theta(const json& value, json& base) {
    const auto theta = as_positive(value);
    if (!theta) {
      problem("rope_theta", positive_rule);
    } else if (hf_.gives("rope_theta") && base_ != *theta) {
      problem("rope_theta",
              fmt::format("the base of rotary positions is {} elsewhere in this file", base_));
    } else {
      base = *theta;
    }
  }

  void read_member(const RopeType& type, const std::string& member, const json& value,
                   json& scaling) {
    const auto* const known = std::ranges::find(rope_members, member, &RopeMember::name);
    if (known != std::end(rope_members) && type.reads(member)) {
      const bool left_out = value.is_null() && !known->required &&
                            known->value != RopeValue::flag && known->value != RopeValue::size;
      // transformers takes null for yarn's factor as the quotient of the positions.
      const bool quotient = value.is_null() && member == "factor" && type.name == "yarn";
      if (left_out || quotient) return;
      const std::string rule = rope_rule(known->value, value);
      if (!rule.empty()) problem(member, rule);
      scaling[member] = value;
      given_.insert(known->name);
    } else if (member == "partial_rotary_factor" || member == "factor") {
      if (!value.is_null() && value != 1) problem(member, "not supported; only 1 is");
    } else if (member != "original_max_position_embeddings" && member != "finetuned") {
      problem(member, "not supported; leave it out");
    }
  }

  // Adds what transformers fills in, and refuses what it needs.
  void complete(const RopeType& type, json& scaling) {
    constexpr auto kOriginal = "original_max_position_embeddings";
    if (type.reads(kOriginal)) {
      // One at the top level comes before one inside.
      if (hf_.gives(kOriginal)) {
        scaling[kOriginal] = hf_.size(kOriginal);
      } else if (!scaling.contains(kOriginal)) {
        scaling[kOriginal] = positions_;
      }
    }
    for (const RopeMember& member : rope_members) {
      if (!member.required || !type.reads(member.name) || given_.contains(member.name)) continue;
      const auto original = as_size(scaling.value(kOriginal, json()));
      if (member.name == "factor" && values_.contains("factor") && original &&
          positions_ >= *original) {
        scaling["factor"] = static_cast<double>(positions_) / static_cast<double>(*original);
      } else {
        hf_.add_problem(fmt::format("/{}/{}: is missing: rope_type \"{}\" needs it", key_,
                                    member.name, type.name));
      }
    }
  }

  HuggingFaceConfig& hf_;
  std::string_view key_;
  const json& values_;
  double base_;
  std::int64_t positions_;
  std::set<std::string_view> given_;  // the members that have a value of their own
};

}  // namespace

json rotary_positions(HuggingFaceConfig& hf, std::int64_t positions, double base) {
  const double alone = hf.gives("rope_theta") ? hf.number_or("rope_theta", base) : base;
  const auto read = [&](std::string_view key) {
    return RopeReader(hf, key, alone, positions).read();
  };
  if (!hf.gives_members("rope_scaling")) {
    if (hf.gives("rope_parameters")) return read("rope_parameters");
    refuse_null_theta(hf);
    return {{"rotary_base", alone}, {"rope_scaling", usual_scaling()}};
  }
  const std::size_t before = hf.problems();
  json scaled = read("rope_scaling");
  if (!hf.gives("rope_parameters")) return scaled;
  const json other = read("rope_parameters");
  if (hf.problems() > before) return scaled;
  if (other["rotary_base"] != scaled["rotary_base"]) {
    hf.refuse("rope_scaling",
              fmt::format("replaces all of rope_parameters, with {} as the base of rotary "
                          "positions, but rope_parameters has {}; leave one of the two out",
                          scaled["rotary_base"].get<double>(), other["rotary_base"].get<double>()));
  } else if (other != scaled) {
    hf.refuse("rope_scaling",
              "replaces all of rope_parameters, which differ; leave one of the two out");
  }
  return scaled;
}

}  // namespace trident
