// `generate`: continues a text with trained weights.
#include "run/generation/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include "app/options.h"
#include "base/error.h"
#include "base/files/file.h"
#include "base/printable.h"
#include "base/process/process.h"
#include "base/utf8.h"
#include "checkpoint/checkpoint_tools.h"
#include "engine/setup/from_config.h"
#include "engine/setup/text_setup.h"
#include "formats/hugging_face/hugging_face_extras.h"
#include "formats/hugging_face/model_directory.h"
#include "kernels/cuda_device.h"
#include "run/generation/text_stream.h"
#include "run/startup/bf16_products.h"

namespace trident::app {
namespace {

struct Request {
  std::string directory, format = "text";
  std::optional<std::string> prompt, ids_given;
  std::vector<std::int32_t> ids;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  GenerateOptions generate;
};

// The model's tokenizer. nullopt where tokens are bytes, or where --ids needs no tokenizer.
std::optional<Tokenizer> tokenizer_of(const Request& request, const std::string& directory,
                                      std::int64_t vocab_size) {
  const std::string path = directory + "/tokenizer.json";
  std::error_code missing;
  if (std::filesystem::is_regular_file(path, missing)) {
    if (read_tokenizer(path) == byte_tokenizer()) return std::nullopt;
    if (request.ids.empty()) return Tokenizer(read_tokenizer(path), path);
    try {
      return Tokenizer(read_tokenizer(path), path);
    } catch (const RequestError&) {
      return std::nullopt;
    }
  }
  if (vocab_size != 256 && request.ids.empty()) {
    throw RequestError(fmt::format(
        "{}: has no tokenizer.json, so text can't be given to its vocabulary of {}; use "
        "--ids",
        directory, vocab_size));
  }
  return std::nullopt;
}

// Parses numbers separated by commas or white space; "-" reads them from standard input.
std::vector<std::int32_t> ids_of(const std::string& given) {
  const std::string text = given == "-" ? read_standard_input(std::uint64_t{64} << 20) : given;
  std::vector<std::string> words;
  for (const std::string& item : items_of("--ids", text)) {
    std::istringstream stream(item);
    const std::size_t before = words.size();
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.size() == before) throw RequestError("--ids: has nothing between two commas");
  }
  std::vector<std::int32_t> ids;
  for (const std::string& one : words) {
    std::int32_t id = 0;
    const auto [rest, error] = std::from_chars(one.data(), one.data() + one.size(), id);
    if (error != std::errc() || rest != one.data() + one.size()) {
      throw RequestError(fmt::format("--ids: \"{}\" is no id", printable(one, 40)));
    }
    ids.push_back(id);
  }
  return ids;
}

// The text of --prompt, or else of standard input without its last line end.
std::string prompt_of(const Request& request) {
  if (request.prompt) return *request.prompt;
  if (::isatty(STDIN_FILENO) != 0) return "";
  std::string text = read_standard_input(std::uint64_t{64} << 20);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void show(const std::string& text) {
  const std::string safe = ::isatty(STDOUT_FILENO) != 0 ? printable_lines(text) : text;
  std::fwrite(safe.data(), 1, safe.size(), stdout);
  std::fflush(stdout);
}

// Rejects NaN, which CLI::Range accepts, and empty stop strings.
void check(const Request& request) {
  const SamplingOptions& sampling = request.generate.sampling;
  for (const auto& [name, value] :
       {std::pair("--temperature", sampling.temperature), std::pair("--top-p", sampling.top_p),
        std::pair("--min-p", sampling.min_p),
        std::pair("--repetition-penalty", sampling.repetition_penalty)}) {
    if (std::isnan(value)) throw RequestError(fmt::format("{}: needs a number", name));
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) throw RequestError("--stop: needs a text that is not empty");
  }
}

int run(const Request& request, const Launch& launch) {
  if (launch.mpi)
    throw RequestError("trident generate: runs in one process; start it without mpirun");
  check(request);
  const auto architectures = built_in_architectures();
  const std::string directory = weights_directory(request.directory);
  require_whole_weights(directory);
  const Config config = config_of_directory(architectures, directory);
  const std::string note =
      notes_of(directory, architectures.at(config.model.architecture)->formats());
  if (!note.empty()) print_error(note);
  const std::optional<Tokenizer> tokenizer =
      tokenizer_of(request, directory, config.model.vocab_size);
  const Tokenizer* known = tokenizer ? &*tokenizer : nullptr;
  const bool text = request.ids.empty();  // text in and out, or ids
  std::vector<std::int32_t> prompt = request.ids;
  const std::string prompt_text = text ? prompt_of(request) : "";
  if (known != nullptr && text) {
    if (invalid_utf8(prompt_text) != std::string::npos) {
      throw RequestError("trident generate: the prompt isn't UTF-8");
    }
    if (!prompt_text.empty()) prompt = known->encode_prompt(prompt_text);
  } else {
    for (const char c : prompt_text) prompt.push_back(static_cast<unsigned char>(c));
  }
  const bool bytes =
      known == nullptr && (config.model.vocab_size == 256 || has_byte_tokenizer(directory));
  if (!text && known == nullptr && !bytes && !request.stop.empty()) {
    throw RequestError("--stop: needs the model's tokenizer, to know the text of its ids");
  }
  GenerateOptions options = request.generate;
  if (!request.ignore_eos) options.end = end_tokens(directory, known);

  const bool streams = request.format == "text";
  std::vector<TextStream> streams_of(static_cast<std::size_t>(options.texts),
                                     TextStream(known, prompt, request.stop));
  std::vector<std::string> text_of_samples(static_cast<std::size_t>(options.texts));
  std::int64_t begun = 0;  // number of texts whose output has begun
  const auto end_text = [&] {
    show((text ? streams_of[static_cast<std::size_t>(begun - 1)].finish() : "") + "\n");
  };
  // Begins all texts up to `count`: a text may end without a call of on_token.
  const auto begin_texts = [&](std::int64_t count) {
    while (begun < count) {
      if (begun++ > 0) end_text();
      if (options.texts > 1) show(fmt::format("--- {} of {} ---\n", begun, options.texts));
      show(text ? prompt_text : fmt::format("{}", fmt::join(prompt, " ")));
    }
  };
  options.on_token = [&](std::int64_t index, std::int32_t token) {
    if (streams) begin_texts(index + 1);
    TextStream& stream = streams_of[static_cast<std::size_t>(index)];
    const std::string more = known != nullptr || bytes ? stream.add(token) : "";
    text_of_samples[static_cast<std::size_t>(index)] += more;
    if (streams) show(text ? more : fmt::format(" {}", token));
    return !stream.stopped();
  };
  const auto device = find_gpus().count > 0 ? make_cuda_device(0) : make_cpu_device();
  Config with_products = config;
  with_products.runtime.bf16_products =
      products_of_weights(config, {request.directory, directory}, launch);
  std::vector<std::vector<std::int32_t>> texts;
  run_local(1, {}, [&](Transport& transport) {
    Context context(
        *device, launch.cores,
        kernel_options(with_products.training, with_products.precision, with_products.runtime));
    texts = generate(context, transport, architectures, directory, prompt, options);
  });
  if (streams) {
    begin_texts(options.texts);
    end_text();
    return 0;
  }
  std::string prompt_of_ids = known != nullptr ? known->decode(request.ids, false) : "";
  for (const std::int32_t id : request.ids) {
    if (known == nullptr && id < 256) prompt_of_ids += static_cast<char>(id);
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    nlohmann::ordered_json one{{"tokens", texts[i]}};
    if (known != nullptr || bytes) {
      one["text"] =
          (text ? prompt_text : prompt_of_ids) + text_of_samples[i] + streams_of[i].finish();
    }
    list.push_back(std::move(one));
  }
  const auto document = list.size() == 1 ? list[0] : nlohmann::ordered_json{{"texts", list}};
  // Invalid UTF-8 becomes replacement characters in JSON.
  fmt::print("{}\n", document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, const Launch& launch, Action& action) {
  auto* command = app.add_subcommand("generate", "Continue a text with trained weights");
  auto options = std::make_shared<Request>();
  SamplingOptions& sampling = options->generate.sampling;
  command->add_option("directory", options->directory, "A Hugging Face directory, or a run")
      ->required();
  auto* prompt =
      command->add_option("--prompt", options->prompt, "Text to continue; default: standard input");
  command
      ->add_option("--ids", options->ids_given,
                   "Token ids in its place, comma-separated, or - for standard input; ids out, too")
      ->excludes(prompt);
  command
      ->add_option("--tokens,--max-new-tokens", options->generate.tokens, "The most tokens to add")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      ->add_option("--samples,--num-return-sequences", options->generate.texts,
                   "Number of texts, each sampled by itself")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0 takes the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Sample among the k likeliest; 0: all")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  command
      ->add_option("--top-p", sampling.top_p,
                   "Sample among the likeliest tokens whose probabilities sum to this")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--min-p", sampling.min_p,
                   "Leave out tokens below this fraction of the highest probability")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option("--repetition-penalty", sampling.repetition_penalty,
                   "Above 1: tokens that occurred before become less likely")
      ->check(CLI::Range(0.01, 100.0))
      ->capture_default_str();
  command
      ->add_option("--stop,--stop-strings", options->stop,
                   "A text ends at this string; may be given again")
      ->allow_extra_args(false);  // otherwise "[a,b]" would be a list
  command->add_flag("--ignore-eos", options->ignore_eos, "Continue after the end of text");
  command->add_option("--seed", sampling.seed)
      ->check([](const std::string& text) -> std::string {
        std::uint64_t seed = 0;  // CLI11 clamps larger values
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
        const bool whole = error == std::errc() && end == text.data() + text.size();
        return whole ? "" : "needs a whole number from 0 to 2^64 - 1";
      })
      ->capture_default_str();
  add_format_option(*command, options->format);
  command->callback([options, &launch, &action] {
    action = [options, &launch] {
      if (options->ids_given) options->ids = ids_of(*options->ids_given);
      return run(*options, launch);
    };
  });
}

}  // namespace trident::app
