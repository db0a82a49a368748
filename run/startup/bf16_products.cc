#include "run/startup/bf16_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/files/file.h"
#include "base/files/json.h"
#include "base/median.h"
#include "base/process/process.h"
#include "engine/setup/from_config.h"
#include "report/product_rate.h"
#include "run/folders/locked_folder.h"

namespace trident {
namespace {

using nlohmann::json;

constexpr double much_faster = 1.2, faster = 1.05;  // than native, the default

bool has_ways(const RuntimeConfig& runtime, const PrecisionConfig& precision) {
  return runtime.device == "cpu" && precision.dtype == "bf16";
}

bool is_way(const std::string& text) {
  return text == "native" || text == "widened";
}

bool widens(const Bf16Rates& rates, double by) {
  return rates.known() && rates.widened > by * rates.native;
}

Bf16Rates rates_of(const Bf16Machine& machine) {
  if (machine.kept.known() || !machine.measure) return machine.kept;
  const Bf16Rates rates = machine.measure();
  if (rates.known() && machine.keep) machine.keep(rates);
  return rates;
}

std::string text_of(const Bf16Rates& rates) {
  return fmt::format("native {:.0f}, widened {:.0f} GFLOP/s", rates.native * 1e-9,
                     rates.widened * 1e-9);
}

// The products of a micro-batch in a feed-forward layer.
std::vector<ProductShape> shapes_of(const Config& config) {
  constexpr std::int64_t most_tokens = 1024, widest = 2048;
  const std::int64_t tokens =
      std::clamp<std::int64_t>(config.batch.micro_batch_size * config.data.sequence_length /
                                   config.parallel.context_parallel_size,
                               16, most_tokens);
  const std::int64_t hidden = std::min(config.model.hidden_size, widest);
  const std::int64_t inner = std::clamp<std::int64_t>(config.model.ffn_hidden_size, 16, widest);
  return {{tokens, hidden, inner}, {tokens, inner, hidden}};
}

// Seconds per FLOP, the mean over all shapes.
double time_of(Context& context, const std::vector<ProductShape>& shapes) {
  constexpr double seconds = 0.02;
  double sum = 0;
  for (const ProductShape& shape : shapes) {
    sum += 1 / product_rate(context, DType::bf16, shape, seconds);
  }
  return sum / static_cast<double>(shapes.size());
}

// Alternates between the two ways, since other load on the machine varies. Runs on its own thread,
// so that the thread's OpenMP team ends with it.
Bf16Rates measure(const Config& config, int threads) {
  constexpr int rounds = 7;
  return std::async(std::launch::async,
                    [&] {
                      const auto device = make_cpu_device();
                      KernelOptions options =
                          kernel_options(config.training, config.precision, config.runtime);
                      options.widen_bf16 = false;
                      Context native(*device, threads, options);
                      options.widen_bf16 = true;
                      Context widened(*device, threads, options);
                      const std::vector<ProductShape> shapes = shapes_of(config);
                      std::vector<double> natives, wideneds;
                      for (int i = 0; i < rounds; ++i) {
                        natives.push_back(time_of(native, shapes));
                        wideneds.push_back(time_of(widened, shapes));
                      }
                      return Bf16Rates{1 / median(natives), 1 / median(wideneds)};
                    })
      .get();
}

// The rates that earlier runs measured, by processor, library and number of threads. A damaged file
// counts as empty, and a failure to write is ignored.
class KeptRates {
 public:
  KeptRates(const Launch& launch, int threads)
      : path_(launch.cache_folder.empty() ? "" : launch.cache_folder + "/bf16_products.json"),
        machine_(
            fmt::format("{}, {}, {} threads", processor_name(), cpu_product_library(), threads)) {}

  Bf16Rates read() const {
    const json one = all().value(machine_, json());
    const auto rate = [&](const char* way) {
      return one.is_object() && one.contains(way) && one[way].is_number() ? one[way].get<double>()
                                                                          : 0;
    };
    return {rate("native"), rate("widened")};
  }
  void write(const Bf16Rates& rates) const {
    if (path_.empty()) return;
    try {
      json document = all();
      document[machine_] = {{"native", rates.native}, {"widened", rates.widened}};
      std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
      write_file_atomic(path_, json_text(document, 1) + "\n");
    } catch (const std::exception&) {  // the next run measures again
    }
  }

 private:
  json all() const {
    json document;
    try {
      if (!path_.empty()) document = json_or_null(read_file(path_, 1 << 20));
    } catch (const std::exception&) {
    }
    return document.is_object() ? document : json::object();
  }

  std::string path_, machine_;
};

}  // namespace

Bf16Machine bf16_machine(const Config& config, const Launch& launch) {
  if (!has_ways(config.runtime, config.precision)) return {};
  const std::int64_t ranks = launch.mpi ? 1 : config.world_size();
  const int threads = static_cast<int>(std::clamp<std::int64_t>(
      ranks * config.runtime.threads_per_rank, 1, std::max(1, launch.cores)));
  const KeptRates kept(launch, threads);
  return {.instructions = cpu_bf16(),
          .kept = kept.read(),
          .measure = [config, threads] { return measure(config, threads); },
          .keep = [kept](const Bf16Rates& rates) { kept.write(rates); }};
}

Bf16Choice choose_bf16_products(const Config& config, const std::string& saved,
                                const Bf16Machine& machine) {
  const std::string& asked = config.runtime.bf16_products;
  if (!has_ways(config.runtime, config.precision) || asked != "auto") return {asked, ""};
  const bool resumes = is_way(saved);
  if (machine.instructions == CpuBf16::none) return {resumes ? saved : asked, ""};
  if (machine.instructions == CpuBf16::tiles) {
    if (!resumes || saved == "native") return {"native", ""};
    return {saved,
            "bf16 products stay widened, as the run began; this processor has AMX, so "
            "runtime.bf16_products \"native\" is faster here, with other last digits"};
  }
  const Bf16Rates rates = rates_of(machine);
  const std::string best = widens(rates, faster) ? "widened" : "native";
  if (!rates.known()) return {resumes ? saved : best, ""};
  if (!resumes) return {best, fmt::format("bf16 products: {} ({})", best, text_of(rates))};
  if (saved == best) return {saved, ""};
  return {saved, fmt::format("bf16 products stay {}, as the run began; for a new run {} would be "
                             "chosen here ({}): runtime.bf16_products sets it, with other last "
                             "digits",
                             saved, best, text_of(rates))};
}

std::string choose_products_of_weights(const Config& config, const std::string& saved,
                                       const Bf16Machine& machine) {
  const std::string& asked = config.runtime.bf16_products;
  if (!has_ways(config.runtime, config.precision) || asked != "auto") return asked;
  if (is_way(saved)) return saved;
  if (machine.instructions == CpuBf16::none) return asked;
  const bool slow = machine.instructions == CpuBf16::vectors && widens(machine.kept, much_faster);
  return slow ? "widened" : "native";
}

std::string expected_bf16_products(const Config& config, const Launch& launch) {
  Bf16Machine machine = bf16_machine(config, launch);
  machine.measure = nullptr;
  return choose_bf16_products(config, "", machine).way;
}

std::string products_of_weights(const Config& config, const std::vector<std::string>& directories,
                                const Launch& launch) {
  std::string saved;
  for (const std::string& directory : directories) {
    if (saved.empty()) saved = saved_bf16_products(directory);
  }
  return choose_products_of_weights(config, saved, bf16_machine(config, launch));
}

std::string saved_bf16_products(const std::string& directory) {
  // A checkpoint is a subfolder of its run's folder.
  const std::filesystem::path path = std::filesystem::path(directory) / "";
  for (const auto& folder : {path.parent_path(), path.parent_path().parent_path()}) {
    const json owner = folder.empty() ? json() : read_without_lock(folder.string()).owner;
    if (!owner.contains(bf16_products_key) || !owner[bf16_products_key].is_string()) continue;
    const auto way = owner[bf16_products_key].get<std::string>();
    if (is_way(way)) return way;
  }
  return "";
}

std::string agree_on_bf16_products(Config& config, const Launch& launch,
                                   const std::function<Bf16Choice()>& choose) {
  constexpr std::chrono::minutes longer(2);
  const std::string chosen = launch.start->exchange(
      "",
      [&](const std::vector<std::string>&) {
        const Bf16Choice choice = choose();
        return json_text(json{{"way", choice.way}, {"text", choice.text}});
      },
      longer);
  const json document = parse_json(chosen, "the choice of rank 0");
  if (config.runtime.bf16_products != "auto") return "";  // compare_ranks() checks the others
  config.runtime.bf16_products = document.at("way").get<std::string>();
  return document.at("text").get<std::string>();
}

}  // namespace trident
