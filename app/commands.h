// The subcommands of `trident`. Each add_ function adds one subcommand to the command line; main()
// calls them all before it parses the arguments. `Launch` and `Action` must outlive the parser.
#pragma once

#include <functional>

#include "run/processes/launch.h"

namespace CLI {
class App;
}

namespace trident::app {

// Finds out how this process was started, from the environment that mpirun and srun set.
// `arguments` is main's argv. May start the program again with other environment variables, so call
// it first and before other threads exist.
Launch detect_launch(char** arguments);

// The version of the program.
const char* version();

// Runs the chosen subcommand and returns the exit code. The subcommand's callback sets it, main()
// runs it.
using Action = std::function<int()>;

void add_train(CLI::App&, const Launch&, Action&);
void add_plan(CLI::App&, const Launch&, Action&);
void add_generate(CLI::App&, const Launch&, Action&);
void add_eval(CLI::App&, const Launch&, Action&);
// Puts "./" before paths such as "[a,b]" of `eval --data` and `tokenizer train` in the words of a
// command line, since CLI11 would parse them as lists.
void keep_paths_in_brackets(std::vector<std::string>& words);
void add_convert(CLI::App&, const Launch&, Action&);  // export and import
void add_schema(CLI::App&, Action&);
void add_init(CLI::App&, Action&);
// completion and man; they cover all commands that `app` has when they run.
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
