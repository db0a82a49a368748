// The `trident` command line. Exit codes: 0 the command is done; 2 the request is wrong, and
// nothing was started or written; 3 a failure while running; 130 a signal stopped the run after
// saving.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "app/commands.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "parallel/transport/transport.h"

namespace {

// Opens /dev/null in place of a closed standard stream (`2>&-`). Otherwise the next opened file
// would get its number, and printed text would go into that file. The stream stays unusable.
void occupy_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

constexpr const char* not_all_written = "standard output: not all of it could be written";

// A message about a word that the innermost named command doesn't know, with the nearest known
// word; "" where all words are known.
std::string unknown_word(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const auto words = app.remaining(true);
  if (words.empty()) return "";
  const std::string& word = words.front();
  const std::string given = word.substr(0, word.find('='));
  std::string name = "trident";
  if (command != &app) name += " " + command->get_name();
  if (command->get_parent() != nullptr && command->get_parent() != &app) {
    name = "trident " + command->get_parent()->get_name() + " " + command->get_name();
  }
  std::vector<std::string> known;
  if (word.starts_with("-")) {
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& one : option->get_lnames()) known.push_back("--" + one);
    }
  } else {
    for (const CLI::App* one : command->get_subcommands({})) known.push_back(one->get_name());
  }
  const std::string shown = trident::printable(given, 60);
  if (std::ranges::find(known, given) != known.end()) {
    return fmt::format("trident: {} goes after the command: {} {}", shown, name, shown);
  }
  if (known.empty()) return fmt::format("{}: {} is one argument too many", name, shown);
  const std::string meant = trident::nearest(given, known);
  const std::string advice =
      trident::is_near(given, meant) ? fmt::format("did you mean {}? See", meant) : "see";
  return fmt::format("{}: there is no {} {}; {} {} --help", name,
                     word.starts_with("-") ? "option" : "command", shown.empty() ? "\"\"" : shown,
                     advice, name);
}

// Joins the rendezvous for a refused request, so that all ranks print the same error once.
void join(const CLI::App& app, const trident::Launch& launch) {
  for (const char* command : {"train", "plan", "eval"}) {
    if (app.got_subcommand(command)) launch.start->join(command);
  }
}

// Handles a command line that CLI11 rejects, and requests for help. Returns the exit code.
template <class Fail>
int refused(const CLI::App& app, const CLI::ParseError& error, const trident::Launch& launch,
            const Fail& fail) {
  std::ostringstream out, err;
  if (app.exit(error, out, err) == 0) {
    if (launch.leads) fmt::print("{}", out.str());
    return std::fflush(stdout) == 0 ? 0 : fail(3, not_all_written);
  }
  join(app, launch);
  std::string text = unknown_word(app);
  if (!text.empty()) return fail(2, text);
  text = err.str();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return fail(2, text);
}

// Errors for options with a value of "", which would otherwise act like options not given.
std::vector<std::string> empty_values(const CLI::App& app) {
  std::vector<std::string> problems;
  for (const CLI::Option* option : app.get_options()) {
    const bool may_be = option->check_lname("prompt") || option->check_lname("stop");
    if (option->count() == 0 || !option->nonpositional() || may_be) continue;
    if (option->get_items_expected_max() == 0 ||
        std::ranges::find(option->results(), "") == option->results().end()) {
      continue;
    }
    problems.push_back(option->get_name() + ": needs a value, not \"\"");
  }
  for (const CLI::App* command : app.get_subcommands()) {
    for (std::string& problem : empty_values(*command)) problems.push_back(std::move(problem));
  }
  return problems;
}

int run(int argc, char** argv) {
  CLI::App app{"Trident pretrains transformers with data, tensor and pipeline parallelism"};
  app.name("trident");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("trident ") + trident::app::version());
  const trident::Launch launch = trident::app::detect_launch(argv);
  trident::app::Action action;
  trident::app::add_train(app, launch, action);
  trident::app::add_plan(app, launch, action);
  trident::app::add_generate(app, launch, action);
  trident::app::add_eval(app, launch, action);
  trident::app::add_convert(app, launch, action);
  trident::app::add_init(app, action);
  trident::app::add_schema(app, action);
  trident::app::add_bench(app, launch, action);
  trident::app::add_schedule(app, launch, action);
  trident::app::add_report(app, launch, action);
  trident::app::add_checkpoint(app, action);
  trident::app::add_launch(app, launch, action);
  trident::app::add_simulate(app, launch, action);
  trident::app::add_sweep(app, launch, action);
  trident::app::add_search(app, launch, action);
  trident::app::add_tokenizer(app, launch, action);
  trident::app::add_completion(app, action);
  const auto fail = [&](int code, const std::string& text) {
    code = launch.start->fail(code, trident::printable_lines(text));
    launch.start->finish(code);
    return code;
  };
  try {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    trident::app::keep_paths_in_brackets(words);
    std::ranges::reverse(words);  // CLI11 parses words from the back
    app.parse(std::move(words));
    const std::vector<std::string> problems = empty_values(app);
    if (!problems.empty()) {
      join(app, launch);
      throw trident::RequestError(problems);
    }
    const int code = action();
    launch.start->finish(code);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw trident::Error(not_all_written);
    }
    return code;
  } catch (const CLI::ParseError& error) {
    return refused(app, error, launch, fail);
  } catch (const trident::RendezvousRefused& refused) {
    launch.start->finish(refused.code);
    return refused.code;
  } catch (const trident::RequestError& error) {
    return fail(2, error.what());
  } catch (const std::exception&) {
    return fail(3, trident::message_of(std::current_exception()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_streams();
  signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails instead of ending the process
  return run(argc, argv);
}
