#include "planner/machine/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/json.h"
#include "base/median.h"
#include "base/nearest.h"
#include "base/printable.h"

namespace trident {
namespace {

// Reads an object key by key and collects every problem.
class Reader {
 public:
  Reader(const nlohmann::json& object, std::string pointer, std::vector<std::string>& problems)
      : object_(object), pointer_(std::move(pointer)), problems_(problems) {
    if (!object_.is_object()) problem("", "needs an object of keys");
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() = default;

  void number(const char* key, double& value, bool optional = false, double least = 1e-12,
              double most = 1e24) {
    const nlohmann::json* const found = find(key, optional);
    if (found == nullptr) return;
    if (!found->is_number() || !(found->get<double>() > 0) || found->get<double>() < least ||
        found->get<double>() > most) {
      const bool large = found->is_number() && found->get<double>() > most;
      problem(key, fmt::format("{}: needs a positive number{}", text(*found),
                               large           ? fmt::format(" of at most {:g}", most)
                               : least > 1e-12 ? fmt::format(" of at least {:g}", least)
                                               : ""));
      return;
    }
    value = found->get<double>();
  }
  // Accepts 0, too, for a cost that doesn't exist.
  void number_or_zero(const char* key, double& value, bool optional = false) {
    const nlohmann::json* const found = find(key, optional);
    if (found == nullptr) return;
    const double given = found->is_number() ? found->get<double>() : -1;
    if (given == 0 || (given >= 1e-12 && given <= 1e24)) {
      value = given;
    } else {
      problem(key, text(*found) + (given > 1e24 ? ": needs 0 or a positive number of at most 1e+24"
                                                : ": needs 0 or a positive number"));
    }
  }
  void integer(const char* key, std::int64_t& value, bool optional = false) {
    const nlohmann::json* const found = find(key, optional);
    if (found == nullptr) return;
    constexpr std::int64_t most = 1 << 24;
    if (!found->is_number_integer() || *found < 1 || *found > most) {
      problem(key, fmt::format("{}: needs an integer from 1 to {}", text(*found), most));
      return;
    }
    value = found->get<std::int64_t>();
  }
  void string(const char* key, std::string& value, bool optional = false) {
    const nlohmann::json* const found = find(key, optional);
    if (found == nullptr) return;
    if (!found->is_string()) return problem(key, fmt::format("{}: needs a string", text(*found)));
    value = found->get<std::string>();
    // Terminals print the names of machines.
    if (printable(value, value.size()) != value)
      problem(key, printable(value, 60) + ": has control characters");
  }
  void object(const char* key, const std::function<void(Reader&)>& read, bool optional = false) {
    const nlohmann::json* const found = find(key, optional);
    if (found == nullptr) return;
    Reader reader(*found, json_pointer_append(pointer_, key), problems_);
    if (!found->is_object()) return;
    read(reader);
    reader.end();
  }
  const nlohmann::json* value(const char* key, bool optional) { return find(key, optional); }

  // Reports every key that wasn't read. Call it after the last key.
  void end() {
    if (!object_.is_object()) return;
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key)) continue;
      problem(key, fmt::format("no such key; did you mean \"{}\"?",
                               nearest(key, {known_.begin(), known_.end()})));
    }
  }
  void problem(std::string_view key, const std::string& what) {
    const std::string at = key.empty() ? pointer_ : json_pointer_append(pointer_, key);
    problems_.push_back(fmt::format("{}: {}", at.empty() ? "/" : at, what));
  }
  static std::string text(const nlohmann::json& value) { return json_text(value).substr(0, 60); }

 private:
  const nlohmann::json* find(const char* key, bool optional) {
    known_.insert(key);
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(key);
    if (found != object_.end()) return &*found;
    if (!optional) problem(key, "is missing");
    return nullptr;
  }

  const nlohmann::json& object_;
  std::string pointer_;
  std::vector<std::string>& problems_;
  std::set<std::string> known_;
};

std::optional<DType> number_type(const std::string& name) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (name_of(dtype) == name) return dtype;
  }
  return std::nullopt;
}

bool any_type(const std::string& name) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8}) {
    if (name_of(dtype) == name) return true;
  }
  return false;
}

// Reads a fraction from 0 to 1.
void read_share(Reader& reader, const char* key, double& share) {
  reader.number_or_zero(key, share, true);
  if (share > 1) reader.problem(key, fmt::format("{:g}: needs a fraction of at most 1", share));
}

// Reads a positive fraction of at most `most`, which may exceed 1.
void read_part(Reader& reader, const char* key, double& part, double most) {
  reader.number(key, part, true);
  if (part > most)
    reader.problem(key, fmt::format("{:g}: needs a fraction of at most {:g}", part, most));
}

// Whether a row has `names` strings and then `least` to `most` positive numbers.
bool is_row(const nlohmann::json& row, std::size_t names, std::size_t least, std::size_t most) {
  if (!row.is_array() || row.size() < names + least || row.size() > names + most) return false;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const bool fits =
        i < names ? row[i].is_string()
                  : row[i].is_number() && row[i].get<double>() > 0 && row[i].get<double>() <= 1e24;
    if (!fits) return false;
  }
  return true;
}

// Calls read(row) for each row of a list. `read` returns false for a row that isn't as `needs`
// says.
void read_rows(Reader& reader, const char* key, const char* needs,
               const std::function<bool(const nlohmann::json&)>& read) {
  const nlohmann::json* const rows = reader.value(key, true);
  if (rows == nullptr) return;
  if (!rows->is_array()) return reader.problem(key, fmt::format("needs a list of {}", needs));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    if (read((*rows)[i])) continue;
    return reader.problem(
        key, fmt::format("{}, number {}: needs {}", Reader::text((*rows)[i]), i, needs));
  }
}

void read_products(Reader& reader, Machine::Device& device) {
  read_rows(reader, "products",
            "[\"fp32\", \"bf16\" or \"fp16\", m, n, k, FLOP/s], all positive, sizes up to 1e9",
            [&](const nlohmann::json& row) {
              if (!is_row(row, 1, 4, 4)) return false;
              const std::optional<DType> dtype = number_type(row[0]);
              MeasuredKernel product;
              for (std::size_t i = 0; i < 3; ++i) {
                product.size[i] = row[i + 1];
                if (!row[i + 1].is_number_integer() || product.size[i] > 1e9) return false;
              }
              if (!dtype || row[4].get<double>() < 1) return false;
              product.seconds =
                  2 * product.size[0] * product.size[1] * product.size[2] / row[4].get<double>();
              device.kernels[fmt::format("gemm {}", name_of(*dtype))].push_back(product);
              return true;
            });
}

// The name decides the number of sizes.
void read_kernels(Reader& reader, Machine::Device& device) {
  read_rows(
      reader, "kernels",
      "[name, \"fp32\", \"bf16\" or \"fp16\", sizes, seconds]; sizes: m, n, k of \"gemm nn\", "
      "\"gemm nt\" and \"gemm tn\", FLOPs and bytes of attention and of grouped products, bytes of "
      "others, each 1 to 1e21; "
      "1e-12 to 1e6 s",
      [&](const nlohmann::json& row) {
        if (!is_row(row, 2, 2, 4)) return false;
        const std::string name = row[0];
        const bool product = name.starts_with("attention") || name.starts_with("grouped");
        const std::size_t sizes = name.starts_with("gemm") ? 3 : product ? 2 : 1;
        if (!any_type(row[1]) || row.size() != sizes + 3) return false;
        MeasuredKernel kernel{.seconds = row[sizes + 2]};
        if (kernel.seconds < 1e-12 || kernel.seconds > 1e6) return false;
        for (std::size_t i = 0; i < sizes; ++i) {
          kernel.size[i] = row[i + 2];
          if (kernel.size[i] < 1 || kernel.size[i] > 1e21) return false;
        }
        device.kernels[fmt::format("{} {}", name, row[1].get<std::string>())].push_back(kernel);
        return true;
      });
}

void read_device(Reader& reader, Machine::Device& device) {
  reader.string("name", device.name);
  std::string kind;
  reader.string("kind", kind);
  if (!kind.empty() && kind != "gpu" && kind != "cpu") {
    reader.problem("kind", fmt::format("\"{}\": needs \"gpu\" or \"cpu\"", kind.substr(0, 60)));
  }
  device.gpu = kind != "cpu";
  reader.number("memory", device.memory, false, 1, 1e18);
  reader.number("memory_bandwidth", device.memory_bandwidth, false, 1);
  reader.integer("units", device.units, true);
  reader.number_or_zero("launch", device.launch, true);
  read_share(reader, "taken_by_collectives", device.taken_by_collectives);
  read_share(reader, "skew", device.skew);
  reader.object("peak", [&](Reader& peaks) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      double rate = 0;
      peaks.number(std::string(name_of(dtype)).c_str(), rate, true, 1);
      if (rate > 0) device.peak[dtype] = rate;
    }
  });
  read_products(reader, device);
  read_kernels(reader, device);
}

void read_link(Reader& reader, Machine::Link& link) {
  reader.number("bandwidth", link.bandwidth, false, 1);
  reader.number_or_zero("latency", link.latency);
}

}  // namespace

double Machine::peak_of(DType dtype) const {
  const auto found = device.peak.find(dtype);
  if (found != device.peak.end()) return found->second;
  throw RequestError(fmt::format("{}: /device/peak: has no {}, which this config computes in", name,
                                 name_of(dtype)));
}

std::int64_t Machine::all_devices() const {
  if (nodes > 0) return nodes * devices_per_node;
  throw RequestError(
      fmt::format("--ranks: has to be given where parallel is \"auto\", for {} may have any number "
                  "of nodes",
                  name));
}

Machine parse_machine(std::string_view text, const std::string& name) {
  const nlohmann::json document = parse_json(text, name);
  std::vector<std::string> problems;
  Machine machine;
  Reader reader(document, "", problems);
  reader.string("name", machine.name);
  reader.string("source", machine.source, true);
  reader.object("device", [&](Reader& device) { read_device(device, machine.device); });
  reader.integer("devices_per_node", machine.devices_per_node);
  reader.integer("nodes", machine.nodes, true);
  reader.object("inside", [&](Reader& link) { read_link(link, machine.inside); });
  reader.object("across", [&](Reader& link) { read_link(link, machine.across); });
  reader.object(
      "efficiency",
      [&](Reader& parts) {
        const double most = machine.most_efficiency();
        read_part(parts, "products", machine.efficiency.products, most);
        read_part(parts, "memory", machine.efficiency.memory, most);
        read_part(parts, "links", machine.efficiency.links, most);
      },
      true);
  reader.object(
      "error",
      [&](Reader& error) {
        error.number("usual", machine.error.usual);
        error.number("most", machine.error.most);
        error.string("of", machine.error.of);
      },
      true);
  reader.end();
  if (problems.empty() && machine.device.peak.empty()) {
    reader.problem("device", "peak needs a rate for fp32, bf16 or fp16");
  }
  if (!problems.empty()) throw RequestError(problems).at(name + ": ");
  return machine;
}

Machine median_of(const std::vector<Machine>& measured) {
  if (measured.empty()) throw Error("median_of: no machine");
  Machine machine = measured.front();
  std::vector<Machine> all = measured;
  const auto set = [&](auto member) {
    std::vector<double> values;
    for (Machine& one : all) values.push_back(member(one));
    member(machine) = median(values);
  };
  set([](Machine& m) -> double& { return m.device.memory; });
  set([](Machine& m) -> double& { return m.device.memory_bandwidth; });
  set([](Machine& m) -> double& { return m.device.launch; });
  set([](Machine& m) -> double& { return m.device.skew; });
  std::map<DType, std::vector<double>> peaks;
  for (const Machine& one : measured) {
    for (const auto& [dtype, rate] : one.device.peak) peaks[dtype].push_back(rate);
  }
  for (const auto& [dtype, rates] : peaks) machine.device.peak[dtype] = median(rates);
  for (Machine::Link Machine::*link : {&Machine::inside, &Machine::across}) {
    set([link](Machine& m) -> double& { return (m.*link).bandwidth; });
    set([link](Machine& m) -> double& { return (m.*link).latency; });
  }
  std::map<std::string, std::map<std::array<double, 3>, std::vector<double>>> times;
  for (const Machine& one : measured) {
    for (const auto& [name, kernels] : one.device.kernels) {
      for (const MeasuredKernel& kernel : kernels) {
        times[name][kernel.size].push_back(kernel.seconds);
      }
    }
  }
  machine.device.kernels.clear();
  for (const auto& [name, sizes] : times) {
    for (const auto& [size, seconds] : sizes) {
      machine.device.kernels[name].push_back({size, median(seconds)});
    }
  }
  return machine;
}

namespace {

// Returns the names of the machines in `folder`, the nearest to `name` first.
std::vector<std::string> known_machines(const std::string& folder, const std::string& name) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
  return names;
}

}  // namespace

Machine read_machine(const std::string& path, const std::string& folder) {
  const bool bare = path.find('/') == std::string::npos && !path.ends_with(".json");
  const std::string file = bare ? folder + "/" + path + ".json" : path;
  std::error_code none;
  if (!std::filesystem::exists(file, none) && !none) {
    const auto known = known_machines(folder, std::filesystem::path(path).stem().string());
    throw RequestError(fmt::format(
        "machine \"{}\": there is no {}; {}give a machine's file (trident bench machine writes "
        "one)",
        printable(path), bare ? "machine of that name" : "such file",
        known.empty() ? "" : fmt::format("known by name are {}; or ", fmt::join(known, ", "))));
  }
  return parse_machine(read_file(file), file);
}

}  // namespace trident
