-- Refuse numbers that are no rate. _what names it in the message.
create or replace function stepwell.check_rate(
  _what text, _count integer, _per double precision, _burst integer, _smooth boolean
)
returns void
language plpgsql immutable
as $$
declare
  _wrong text := case
    when (_count is null) <> (_per is null) then 'give both a count and a number of seconds, or nulls for both'
    when _count is null and _burst is not null then 'a burst needs a count and a number of seconds'
    when _smooth and (_count is null or _burst > 1) then
      'a smooth rate needs a count and a number of seconds, and no burst'
    when _count not between 1 and 1000000 then format('the count is %s: give 1 to 1000000', _count)
    -- NaN is greater than any number.
    when not (_per >= 0.000001 and _per <= 3155760000) then
      format('the count is for %s seconds: give more than 0, and at most 100 years', _per)
    when _per / _count < 1e-9 then 'it is too fast: give fewer than a billion jobs a second'
    when _burst not between 1 and 1000000 then format('the burst is %s: give 1 to 1000000', _burst)
    when _per / _count * _burst > 3155760000 then
      'the burst would take more than 100 years to fill up: give a smaller one'
  end;
begin
  if _wrong is not null then
    raise exception using errcode = 'SW002', message = format('stepwell: the rate of %s: %s', _what, _wrong);
  end if;
end
$$;
