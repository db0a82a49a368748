// `completion` and `man`: print completion scripts for shells, and a manual page. Both are made
// from CLI11's commands and options, as the help is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "app/commands.h"

namespace trident::app {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app, bool positional) {
  return app.get_options([=](const CLI::Option* option) {
    return option->nonpositional() != positional && !option->get_name().empty();
  });
}

// The values that an option allows, from a type name such as "TEXT:{text,json}".
std::vector<std::string> values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// Calls `call` for each command with its path, such as "bench gemm"; the program's path is "".
void each_command(const CLI::App& app, const std::string& path,
                  const std::function<void(const CLI::App&, const std::string&)>& call) {
  call(app, path);
  for (const CLI::App* command : commands_of(app)) {
    each_command(*command, path.empty() ? command->get_name() : path + " " + command->get_name(),
                 call);
  }
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options_of(app, false)) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Completes subcommands and options after a command, values after an option, and files elsewhere.
std::string bash_script(const CLI::App& app) {
  std::string paths, words, values;
  each_command(app, "", [&](const CLI::App& command, const std::string& path) {
    std::vector<std::string> all;
    for (const CLI::App* one : commands_of(command)) all.push_back(one->get_name());
    if (!path.empty()) paths += fmt::format("      \"{}\") path=$next ;;\n", path);
    const std::vector<std::string> names = long_names(command);
    all.insert(all.end(), names.begin(), names.end());
    words += fmt::format("    \"{}\") words=\"{}\" ;;\n", path, fmt::join(all, " "));
    for (const CLI::Option* option : options_of(command, false)) {
      const auto known = values_of(*option);
      if (known.empty()) continue;
      for (const std::string& name : option->get_lnames()) {
        values += fmt::format("    \"{} --{}\") words=\"{}\"; cur=${{cur#=}} ;;\n", path, name,
                              fmt::join(known, " "));
      }
    }
  });
  return fmt::format(
      "# bash completion of trident\n"
      "_trident() {{\n"
      "  local cur=${{COMP_WORDS[COMP_CWORD]}} path= next word before words= i\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    word=${{COMP_WORDS[i]}} next=\"${{path:+$path }}${{COMP_WORDS[i]}}\"\n"
      "    case $next in\n"
      "{}"
      "    esac\n"
      "  done\n"
      "  before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  if [[ $before == \"=\" ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
      "  if [[ $cur == \"=\" ]]; then cur=\"\" before=${{COMP_WORDS[COMP_CWORD-1]}}; fi\n"
      "  COMPREPLY=()\n"
      "  case \"$path $before\" in\n"
      "{}"
      "  esac\n"
      "  if [[ -z $words ]]; then\n"
      "    case $path in\n"
      "{}"
      "    esac\n"
      "    # Offer files unless an option was begun or a command is expected.\n"
      "    if [[ $cur != -* && -n $path && -z ${{words%%-*}} ]]; then words=; fi\n"
      "  fi\n"
      "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
      "}}\n"
      "complete -o default -F _trident trident\n",
      paths, values, words);
}

std::string quoted(std::string text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') break;  // the first line is enough
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// A pattern of a case: "one"|"two".
std::string any_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "\"" : "|\"") + word + "\"";
  return text;
}

// Quotes the first line of a text for zsh, in single quotes.
std::string zsh_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') break;  // the first line is enough
    out += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out + "'";
}

// Completes commands and options with descriptions, values after an option, and files elsewhere.
std::string zsh_script(const CLI::App& app) {
  std::vector<std::string> paths;
  std::string entries, values;
  each_command(app, "", [&](const CLI::App& command, const std::string& path) {
    if (!path.empty()) paths.push_back(path);
    std::string subs, opts;
    for (const CLI::App* one : commands_of(command)) {
      subs += "\n      " + zsh_quoted(one->get_name() + ":" + one->get_description());
    }
    for (const CLI::Option* option : options_of(command, false)) {
      const auto known = values_of(*option);
      for (const std::string& name : option->get_lnames()) {
        opts += "\n      " + zsh_quoted("--" + name + ":" + option->get_description());
        if (known.empty()) continue;
        values += fmt::format("    \"{} --{}\") compadd -- {}; return ;;\n", path, name,
                              fmt::join(known, " "));
      }
    }
    entries += fmt::format("    \"{}\")\n      subs=({})\n      opts=({}) ;;\n", path, subs, opts);
  });
  return fmt::format(
      "#compdef trident\n"
      "# zsh completion of trident: as _trident in a folder of $fpath, or read by `source` after\n"
      "# compinit.\n"
      "_trident() {{\n"
      "  local at= next before i\n"
      "  local -a subs opts\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    next=\"${{at:+$at }}${{words[i]}}\"\n"
      "    case $next in\n"
      "      {}) at=$next ;;\n"
      "    esac\n"
      "  done\n"
      "  before=${{words[CURRENT-1]}}\n"
      "  if [[ $PREFIX == --*=* ]]; then\n"
      "    before=${{PREFIX%%=*}}\n"
      "    compset -P '*='\n"
      "  fi\n"
      "  case \"$at $before\" in\n"
      "{}"
      "  esac\n"
      "  case $at in\n"
      "{}"
      "  esac\n"
      "  if [[ $PREFIX == -* ]]; then\n"
      "    _describe -o -t options option opts\n"
      "    return\n"
      "  fi\n"
      "  (($#subs)) && _describe -t commands command subs\n"
      "  [[ -n $at ]] && _files\n"
      "}}\n"
      "if [[ $funcstack[1] == _trident ]]; then\n"
      "  _trident \"$@\"\n"
      "elif (($+functions[compdef])); then\n"
      "  compdef _trident trident\n"
      "fi\n",
      any_of(paths), values, entries);
}

std::string fish_script(const CLI::App& app) {
  std::string text = "# fish completion of trident\n";
  each_command(app, "", [&](const CLI::App& command, const std::string& path) {
    std::string here = "__fish_use_subcommand";
    if (!path.empty()) {
      here.clear();
      for (const std::string& word : CLI::detail::split(path, ' ')) {
        here += (here.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + word);
      }
    }
    for (const CLI::App* one : commands_of(command)) {
      text +=
          fmt::format("complete -c trident -n '{}' {}-a {} -d {}\n", here,
                      path.empty() ? "-f " : "", one->get_name(), quoted(one->get_description()));
    }
    for (const CLI::Option* option : options_of(command, false)) {
      for (const std::string& name : option->get_lnames()) {
        const auto known = values_of(*option);
        text += fmt::format("complete -c trident -n '{}' -l {}{}{} -d {}\n", here, name,
                            takes_value(*option) ? " -r" : "",
                            known.empty() ? "" : fmt::format(" -f -a '{}'", fmt::join(known, " ")),
                            quoted(option->get_description()));
      }
    }
  });
  return text;
}

// Escapes a text for roff: dashes stay dashes, and no line begins with a control character.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((out.empty() || out.back() == '\n') && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string man_option(const CLI::Option& option, bool positional) {
  const std::string type = option.get_type_name();
  const std::string value = takes_value(option) && !positional
                                ? " \\fI" + roff(type.substr(0, type.find(':'))) + "\\fR"
                                : "";
  std::string text =
      fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(option.get_name(positional, !positional)), value,
                  roff(option.get_description() + "."));
  const auto known = values_of(option);
  if (!known.empty()) text += roff(fmt::format("One of {}.\n", fmt::join(known, ", ")));
  const std::string standard = option.get_default_str();
  if (!standard.empty()) text += roff(fmt::format("Default: {}.\n", standard));
  return text;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string text = fmt::format(
      ".TH TRIDENT 1 \"\" \"trident {}\" \"User Commands\"\n.SH NAME\ntrident \\- {}\n"
      ".SH SYNOPSIS\n.B trident\n.I command\n[\\fIoptions\\fR]\n.SH COMMANDS\n",
      version, roff("pretrains transformers in 3D parallel"));
  each_command(app, "", [&](const CLI::App& command, const std::string& path) {
    if (path.empty()) return;
    text += fmt::format(".SS trident {}\n{}.\n", roff(path), roff(command.get_description()));
    for (const bool positional : {true, false}) {
      for (const CLI::Option* option : options_of(command, positional)) {
        text += man_option(*option, positional);
      }
    }
  });
  text +=
      ".SH EXIT STATUS\n.TP\n0\nDone.\n.TP\n2\nThe request is wrong; nothing was started or "
      "written.\n.TP\n3\nA failure while running.\n.TP\n130\nStopped by Ctrl\\-C or SIGTERM, after "
      "saving.\n.SH FILES\n.TP\nruns/\\fINAME\\fR\nWhere a run of \\fINAME\\fR.json puts its "
      "metrics, its config and its report.\n";
  return text;
}

}  // namespace

void add_completion(CLI::App& app, Action& action) {
  auto* command = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, shell, &action] {
    action = [&app, shell] {
      fmt::print("{}", *shell == "fish"  ? fish_script(app)
                       : *shell == "zsh" ? zsh_script(app)
                                         : bash_script(app));
      return 0;
    };
  });
  auto* man = app.add_subcommand("man", "Print a manual page, for man -l -");
  man->callback([&app, &action] {
    action = [&app] {
      fmt::print("{}", man_page(app, version()));
      return 0;
    };
  });
}

}  // namespace trident::app
