"""Reports: results read from run directories, statistics, tables, figures and the page."""
