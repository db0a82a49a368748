#include "planner/simulation/chakra.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/file.h"
#include "engine/setup/from_config.h"
#include "parallel/collectives/descriptor.h"
#include "parallel/topology.h"
#include "planner/machine/operation_times.h"
#include "planner/plan/planned_rank.h"
#include "planner/simulation/like_actions.h"

namespace trident {
namespace {

// Encodes a protobuf message, field by field.
class Proto {
 public:
  void varint(int field, std::uint64_t value) {
    raw(static_cast<std::uint64_t>(field) << 3);
    raw(value);
  }
  void text(int field, std::string_view value) {
    raw(static_cast<std::uint64_t>(field) << 3 | 2);
    raw(value.size());
    bytes_ += value;
  }
  void raw(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Field numbers of the schema.
namespace chakra_field {
constexpr int metadata_version = 1;
constexpr int id = 1, name = 2, type = 3, data_deps = 5, duration_micros = 7, attr = 10;
constexpr int attr_name = 1, int32_val = 7, int64_val = 9, uint64_val = 13, bool_val = 27,
              string_val = 29;
}  // namespace chakra_field
enum class ChakraType : std::uint8_t { compute = 4, send = 5, receive = 6, collective = 7 };

std::uint64_t comm_type(Operation operation) {
  switch (operation) {
    case Operation::all_reduce:
      return 0;
    case Operation::reduce:
      return 1;
    case Operation::all_gather:
      return 2;
    case Operation::gather:
      return 3;
    case Operation::scatter:
      return 4;
    case Operation::broadcast:
      return 5;
    case Operation::all_to_all:
    case Operation::all_to_all_v:
      return 6;
    case Operation::reduce_scatter:
      return 7;
    default:
      return 9;  // a barrier
  }
}

// A node without its number, its dependencies and its rank.
struct StepNode {
  ChakraType type = ChakraType::compute;
  std::string name;
  double flops = 0, seconds = 0;
  std::int64_t bytes = 0;
  Operation operation = Operation::all_reduce;
  std::string traffic;
  bool overlapped = false;
};

// The nodes of the ranks at a place of the pipeline.
struct PlaceNodes {
  std::vector<StepNode> before, after;  // before the first action and after the last one
  std::vector<const std::vector<StepNode>*> actions;
  std::map<LikeAction, std::vector<StepNode>> known;
};

class ChakraExport {
 public:
  ChakraExport(const Config& config, const Architecture& architecture, const Machine& machine,
               const std::string& prefix)
      : prefix_(prefix),
        machine_(machine),
        mesh_(mesh_of(config.parallel)),
        schedule_(schedule_of(config)),
        planner_(config, architecture, schedule_) {}

  ChakraFiles run() {
    for (int place = 0; place < schedule_.stages; ++place) places_.push_back(place_of(place));
    for (int rank = 0; rank < mesh_.world_size(); ++rank) write(rank);
    nlohmann::ordered_json groups = nlohmann::ordered_json::object();
    for (const auto& [members, number] : groups_) groups[std::to_string(number)] = members;
    write_file(prefix_ + ".groups.json", groups.dump() + "\n");
    return files_;
  }

 private:
  PlaceNodes place_of(int place) const {
    const TracedStep step = planner_.trace(place);
    const auto& held = schedule_.placement[static_cast<std::size_t>(place)];
    PlaceNodes result;
    std::vector<std::vector<StepNode>*> of_action;
    for (const LikeAction& one : like_actions(step.actions, held)) {
      const auto [at, added] = result.known.try_emplace(one);
      of_action.push_back(added ? &at->second : nullptr);
    }
    bool begun = false;
    for (const TracedOperation& one : step.trace.operations()) {
      begun = begun || one.action >= 0;
      std::vector<StepNode>* const nodes = one.action >= 0
                                               ? of_action.at(static_cast<std::size_t>(one.action))
                                           : begun ? &result.after
                                                   : &result.before;
      if (nodes != nullptr) add(step.trace, one, *nodes);
    }
    const auto at = static_cast<std::size_t>(place);
    for (const LikeAction& one : like_actions(schedule_.ranks[at], schedule_.placement[at])) {
      result.actions.push_back(find_like(result.known, one));
      if (result.actions.back() == nullptr) {
        throw Error(fmt::format("chakra: chunk {} has no traced {}", one.chunk, letter(one.kind)));
      }
    }
    // Addresses within `known` stay valid when the map is moved.
    return result;
  }

  void add(const OperationTrace& trace, const TracedOperation& one,
           std::vector<StepNode>& nodes) const {
    if (one.group < 0) {
      if (nodes.empty() || nodes.back().type != ChakraType::compute) {
        nodes.push_back({.name = std::string(one.name)});
      }
      StepNode& node = nodes.back();
      node.flops += one.flops;
      node.bytes += one.bytes_read + one.bytes_written;
      node.seconds += kernel_seconds(machine_, one);
      return;
    }
    const auto operation = static_cast<Operation>(one.operation);
    StepNode node{.name = std::string(one.name),
                  .bytes = one.shape.numel() * static_cast<std::int64_t>(size_of(one.dtype)),
                  .operation = operation,
                  .traffic = std::string(
                      traffic_of(trace.groups()[static_cast<std::size_t>(one.group)].name)),
                  .overlapped = one.asynchronous};
    node.type = operation == Operation::message ? ChakraType::send : ChakraType::collective;
    nodes.push_back(std::move(node));
  }

  std::vector<int> members_of(const std::string& traffic, int rank) const {
    if (const auto group = group_of_traffic(traffic)) return mesh_.group(rank, *group);
    if (traffic == "embedding") return mesh_.embedding_group(rank, ends_of(schedule_));
    std::vector<int> all(static_cast<std::size_t>(mesh_.world_size()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    return all;
  }

  // The file of one rank.
  struct Writer {
    std::string bytes = {};
    std::uint64_t next = 1;
    std::vector<std::uint64_t> stream = {};  // dependencies of the next node on the stream
    std::vector<std::uint64_t> overlapped = {};
    std::map<std::string, std::string> groups = {};  // group names by traffic
  };

  const std::string& group_name(Writer& writer, const std::string& traffic, int rank) {
    std::string& name = writer.groups[traffic];
    if (name.empty()) {
      // ASTRA-sim's group numbers begin at 1
      const auto next = static_cast<int>(groups_.size()) + 1;
      name = std::to_string(groups_.try_emplace(members_of(traffic, rank), next).first->second);
    }
    return name;
  }

  void write(Writer& writer, const StepNode& node, const std::vector<Proto>& attributes) const {
    Proto proto;
    proto.varint(chakra_field::id, writer.next);
    proto.text(chakra_field::name, node.name);
    proto.varint(chakra_field::type, static_cast<std::uint64_t>(node.type));
    Proto others;
    for (const std::uint64_t other : writer.stream) others.raw(other);
    if (!writer.stream.empty()) proto.text(chakra_field::data_deps, others.bytes());
    if (node.type == ChakraType::compute) {
      proto.varint(chakra_field::duration_micros,
                   static_cast<std::uint64_t>(std::llround(std::max(1.0, 1e6 * node.seconds))));
    }
    for (const Proto& one : attributes) proto.text(chakra_field::attr, one.bytes());
    append(writer.bytes, proto);
  }

  static void append(std::string& bytes, const Proto& message) {
    Proto length;
    length.raw(message.bytes().size());
    bytes += length.bytes() + message.bytes();
  }

  static Proto attribute(std::string_view name, int type, std::uint64_t value) {
    Proto proto;
    proto.text(chakra_field::attr_name, name);
    proto.varint(type, value);
    return proto;
  }
  static Proto attribute(std::string_view name, std::string_view value) {
    Proto proto;
    proto.text(chakra_field::attr_name, name);
    proto.text(chakra_field::string_val, value);
    return proto;
  }

  // `message` is the peer and the tag.
  void add(Writer& writer, const StepNode& node, int rank, std::pair<int, int> message) {
    std::vector<Proto> attributes{attribute("is_cpu_op", chakra_field::bool_val, 0)};
    const auto bytes = static_cast<std::uint64_t>(node.bytes);
    if (node.type == ChakraType::compute) {
      attributes.push_back(
          attribute("num_ops", chakra_field::int64_val, static_cast<std::uint64_t>(node.flops)));
      attributes.push_back(attribute("tensor_size", chakra_field::uint64_val, bytes));
    } else if (node.type == ChakraType::collective) {
      attributes.push_back(
          attribute("comm_type", chakra_field::int64_val, comm_type(node.operation)));
      attributes.push_back(attribute("comm_size", chakra_field::int64_val, bytes));
      attributes.push_back(attribute("pg_name", group_name(writer, node.traffic, rank)));
    } else {
      const bool sends = node.type == ChakraType::send;
      const auto [peer, tag] = message;
      attributes.push_back(attribute("comm_src", chakra_field::int32_val,
                                     static_cast<std::uint64_t>(sends ? rank : peer)));
      attributes.push_back(attribute("comm_dst", chakra_field::int32_val,
                                     static_cast<std::uint64_t>(sends ? peer : rank)));
      attributes.push_back(
          attribute("comm_tag", chakra_field::int32_val, static_cast<std::uint64_t>(tag)));
      attributes.push_back(attribute("comm_size", chakra_field::int64_val, bytes));
    }
    write(writer, node, attributes);
    const std::uint64_t number = writer.next++;
    ++files_.nodes;
    if (node.type == ChakraType::send) return;  // no node waits for a send
    if (node.overlapped) {
      writer.overlapped.push_back(number);
    } else {
      writer.stream = {number};
    }
  }

  // Returns the tag of the message that an action of `stage` sends, to the next stage in a forward
  // and to the previous one in a backward.
  int tag_of(Kind kind, int stage, int microbatch) const {
    const int place = microbatch * schedule_.total_stages() + stage;
    return 2 * place + (kind == Kind::forward ? 0 : 1);
  }

  // Adds the message that the action receives from another stage; none if that stage is on this
  // rank.
  void receive(Writer& writer, const Action& action, int rank, const std::vector<int>& pipeline) {
    if (action.kind == Kind::backward_weight) return;
    const bool forward = action.kind == Kind::forward;
    const int from = action.stage + (forward ? -1 : 1);
    if (from < 0 || from >= schedule_.total_stages()) return;
    const int place = schedule_.rank_of_stage(from);
    const int sender = pipeline[static_cast<std::size_t>(place)];
    if (sender == rank) return;
    // The sender's action has the size of the message.
    const auto& list = schedule_.ranks[static_cast<std::size_t>(place)];
    const auto sent = std::find_if(list.begin(), list.end(), [&](const Action& one) {
      return one.stage == from && one.microbatch == action.microbatch &&
             (one.kind == Kind::forward) == forward && one.kind != Kind::backward_weight;
    });
    const auto& nodes = *places_[static_cast<std::size_t>(place)]
                             .actions[static_cast<std::size_t>(sent - list.begin())];
    for (const StepNode& node : nodes) {
      if (node.type != ChakraType::send) continue;
      StepNode received = node;
      received.type = ChakraType::receive;
      received.name = "receive";
      add(writer, received, rank, {sender, tag_of(action.kind, from, action.microbatch)});
    }
  }

  void write(int rank) {
    const std::vector<int> pipeline = mesh_.pipeline(rank);
    const auto at = static_cast<std::size_t>(std::find(pipeline.begin(), pipeline.end(), rank) -
                                             pipeline.begin());
    const PlaceNodes& place = places_[at];
    Writer writer;
    Proto metadata;
    metadata.text(chakra_field::metadata_version, "0.0.4");
    append(writer.bytes, metadata);
    for (const StepNode& node : place.before) add(writer, node, rank, {});
    const auto& list = schedule_.ranks[at];
    for (std::size_t i = 0; i < list.size(); ++i) {
      receive(writer, list[i], rank, pipeline);
      const int to = list[i].stage + (list[i].kind == Kind::forward ? 1 : -1);
      for (const StepNode& node : *place.actions[i]) {
        std::pair<int, int> message;
        if (node.type == ChakraType::send) {
          const int peer = pipeline[static_cast<std::size_t>(schedule_.rank_of_stage(to))];
          message = {peer, tag_of(list[i].kind, list[i].stage, list[i].microbatch)};
        }
        add(writer, node, rank, message);
      }
    }
    writer.stream.insert(writer.stream.end(), writer.overlapped.begin(), writer.overlapped.end());
    for (const StepNode& node : place.after) add(writer, node, rank, {});
    write_file(fmt::format("{}.{}.et", prefix_, rank), writer.bytes);
    ++files_.ranks;
    files_.bytes += std::ssize(writer.bytes);
  }

  const std::string& prefix_;
  const Machine& machine_;
  Mesh mesh_;
  Schedule schedule_;
  RankPlanner planner_;
  std::vector<PlaceNodes> places_;
  std::map<std::vector<int>, int> groups_;
  ChakraFiles files_;
};

}  // namespace

ChakraFiles write_chakra(const Config& config, const Architecture& architecture,
                         const Machine& machine, const std::string& prefix) {
  const std::string& way = config.parallel.cp_comm_type;
  if (config.parallel.context_parallel_size > 1 && way.ends_with("p2p")) {
    throw RequestError(
        fmt::format("--export chakra: the messages of cp_comm_type \"{}\" can't be exported; use "
                    "\"all_gather\" or \"a2a\"",
                    way));
  }
  return ChakraExport(config, architecture, machine, prefix).run();
}

}  // namespace trident
