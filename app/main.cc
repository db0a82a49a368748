// The `trident` command line. Exit codes: 0 done; 2 the request is wrong, nothing was started or
// written; 3 a failure while running; 130 stopped by Ctrl-C or SIGTERM after saving.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "app/commands.h"
#include "core/error.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Trident pretrains transformers with data, tensor and pipeline parallelism"};
  app.name("trident");
  app.require_subcommand(1);
  const trident::app::Launch launch = trident::app::detect_launch(argv);
  trident::app::Action action;
  trident::app::add_train(app, launch, action);
  trident::app::add_plan(app, launch, action);
  trident::app::add_generate(app, launch, action);
  trident::app::add_convert(app, launch, action);
  trident::app::add_schema(app, action);
  trident::app::add_bench(app, launch, action);
  trident::app::add_schedule(app, launch, action);
  trident::app::add_later(app);
  try {
    app.parse(argc, argv);
    const int code = action();
    launch.job->finish();
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw trident::Error("standard output: not all of it could be written");
    }
    return code;
  } catch (const CLI::RequiredError& error) {
    const auto unknown = app.remaining();
    if (unknown.empty() || !app.get_subcommands().empty()) return app.exit(error) == 0 ? 0 : 2;
    fmt::print(stderr, "trident: there is no command {}; see trident --help\n", unknown.front());
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const trident::RequestError& error) {
    if (launch.leads) fmt::print(stderr, "{}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "trident: {}\n", error.what());
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
