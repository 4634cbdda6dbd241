-- Refuse a transaction that would not see what others have committed since it began: a job that ends takes all its steps with
-- it, one that is about to wait must see what has come, and a new partition takes all rows that are its own.
create or replace function stepwell.check_isolation(_what text default 'a job with steps changes') returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception using errcode = 'feature_not_supported',
      message = format('stepwell: %s only in a transaction at read committed: use another connection', _what);
  end if;
end
$$;
