// The subcommands of `trident`; each adds itself to the command line and gives its exit code.
#pragma once

#include <functional>

#include "run/launch/launch.h"

namespace CLI {
class App;
}

namespace trident::app {

// How this process was started, by the environment that mpirun and srun set. `arguments`: main's.
Launch detect_launch(char** arguments);

// Of the program.
const char* version();

// What the chosen subcommand does; set by its callback, run by main.
using Action = std::function<int()>;

void add_train(CLI::App&, const Launch&, Action&);
void add_plan(CLI::App&, const Launch&, Action&);
void add_generate(CLI::App&, const Launch&, Action&);
void add_eval(CLI::App&, const Launch&, Action&);
// CLI11 takes "[a,b]" for a list wherever an option has several values. Puts "./" before such paths
// of `eval --data` and `tokenizer train`, in the words of a command line.
void keep_paths_in_brackets(std::vector<std::string>& words);
void add_convert(CLI::App&, const Launch&, Action&);  // export and import
void add_schema(CLI::App&, Action&);
void add_init(CLI::App&, Action&);
// completion and man, of all commands that `app` has when they run.
void add_completion(CLI::App& app, Action&);
void add_bench(CLI::App&, const Launch&, Action&);
void add_report(CLI::App&, const Launch&, Action&);
void add_schedule(CLI::App&, const Launch&, Action&);
void add_checkpoint(CLI::App&, Action&);
void add_launch(CLI::App&, const Launch&, Action&);
void add_simulate(CLI::App&, const Launch&, Action&);
void add_sweep(CLI::App&, const Launch&, Action&);
void add_tokenizer(CLI::App&, const Launch&, Action&);
void add_search(CLI::App&, const Launch&, Action&);

}  // namespace trident::app
