// The testbench: all forms of the head on the same rows. Run it in the folder of the vectors; +rows=N runs the first N.
module bench #(
    parameter int ROWS = 65,
    parameter bit LEAK = 1,
    parameter int FIRST_FORM = 0,
    parameter int LAST_FORM = 2
);
  logic clk = 0;
  logic [LAST_FORM:FIRST_FORM] finished;
  int rows;
  initial if (!$value$plusargs("rows=%d", rows)) rows = ROWS;
  always #5 clk = !clk;
  for (genvar form = FIRST_FORM; form <= LAST_FORM; form++) begin : forms
    bench_form #(.FORM(form), .LEAK(LEAK && form == 2), .ROWS(ROWS)) one (.clk, .rows, .finished(finished[form]));
  end
  always @(posedge clk) if (&finished) $finish;
endmodule
