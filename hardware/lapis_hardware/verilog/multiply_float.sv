// y = a b in floating point, rounded to the nearest even. Numbers below the smallest normal one become zero; infinities
// and NaN are not made: the operands of attention have none.
module multiply_float #(
    parameter int EXPONENT_BITS = 5,
    parameter int FRACTION_BITS = 10
) (
    input  logic                                 clk,
    input  logic [EXPONENT_BITS+FRACTION_BITS:0] a,
    input  logic [EXPONENT_BITS+FRACTION_BITS:0] b,
    output logic [EXPONENT_BITS+FRACTION_BITS:0] y
);
  localparam int E = EXPONENT_BITS, F = FRACTION_BITS;
  localparam logic [E+1:0] BIAS = (E+2)'((1 << (E - 1)) - 1);
  logic is_negative, is_zero, high, up;
  logic [2*F+1:0] product;
  logic [2*F:0] rest;                                  // below the leading one, left aligned
  logic [F:0] rounded;
  logic [E+1:0] exponent;
  assign is_negative = a[E+F] ^ b[E+F];
  assign is_zero = a[E+F-1:F] == '0 || b[E+F-1:F] == '0;
  assign product = {1'b1, a[F-1:0]} * (2*F+2)'({1'b1, b[F-1:0]});
  assign high = product[2*F+1];
  assign rest = high ? product[2*F:0] : {product[2*F-1:0], 1'b0};
  assign up = rest[F] && (|rest[F-1:0] || rest[F+1]);
  assign rounded = {1'b0, rest[2*F:F+1]} + (F+1)'(up);
  assign exponent = (E+2)'(a[E+F-1:F]) + (E+2)'(b[E+F-1:F]) - BIAS + (E+2)'(high) + (E+2)'(rounded[F]);
  always_ff @(posedge clk)
    y <= is_zero || exponent[E+1] || exponent == '0 ? {is_negative, (E+F)'(0)}
                                                    : {is_negative, exponent[E-1:0], rounded[F-1:0]};
endmodule
